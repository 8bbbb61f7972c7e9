//! The facts that come with this program: a text of our own, described at its top.

use std::{collections::BTreeMap, sync::Arc};

use jiff::civil::Date;
use serde_json::Value;

use crate::{
    Distro,
    release::{Argument, Arguments, Catalog, Release, Releases, Source, Versions},
    version::{self, Minor},
};

pub(crate) const SHIPPED: &str = include_str!("releases.txt");

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {what}")]
pub(crate) struct TableError {
    line: usize,
    what: &'static str,
}

/// Reads a whole table. Names and values that occur often are kept once.
pub(crate) fn read(text: &str) -> Result<Catalog, TableError> {
    let mut reader = Reader::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            reader.line(line).map_err(|what| TableError { line: index + 1, what })?;
        }
    }
    reader.end_release();
    let [k3s, rke2] = reader.parts.map(|part| Releases::new(part.releases, part.channels, part.end_of_life));
    Ok(Catalog { source: Source::Shipped, date: reader.date, k3s, rke2 })
}

#[derive(Default)]
struct Part {
    releases: Vec<Release>,
    channels: BTreeMap<String, String>,
    end_of_life: BTreeMap<Minor, Date>,
}

#[derive(Default)]
struct Reader {
    date: Option<Date>,
    parts: [Part; 2],
    distro: Option<Distro>,
    /// The release that is being read.
    release: Option<Release>,
    words: BTreeMap<Box<str>, Arc<str>>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let (key, rest) = line.split_once(' ').ok_or("nothing follows the first word")?;
        match key {
            "date" => self.date = Some(day(rest)?),
            "distribution" => {
                self.end_release();
                self.distro = Some(Distro::named(rest).ok_or("there is no such distribution")?);
            }
            "end-of-life" => {
                let (minor, date) = pair(rest)?;
                let minor = Minor::parse(minor).ok_or("not a minor version")?;
                let date = day(date)?;
                self.part()?.end_of_life.insert(minor, date);
            }
            "channel" => {
                let (name, version) = pair(rest)?;
                self.part()?.channels.insert(name.to_owned(), version.to_owned());
            }
            "release" => self.begin_release(rest)?,
            "server" | "agent" => self.arguments(key == "server", rest)?,
            "feature" | "chart" | "image" => self.versions(key, rest)?,
            _ => return Err("the first word is not known"),
        }
        Ok(())
    }

    fn part(&mut self) -> Result<&mut Part, &'static str> {
        let distro = self.distro.ok_or("no distribution was named")?;
        Ok(&mut self.parts[distro as usize])
    }

    fn end_release(&mut self) {
        if let (Some(release), Some(distro)) = (self.release.take(), self.distro) {
            self.parts[distro as usize].releases.push(release);
        }
    }

    fn begin_release(&mut self, rest: &str) -> Result<(), &'static str> {
        let (version, date) = pair(rest)?;
        let parsed = version::parse(version).ok_or("not a version")?;
        let date = day(date)?;
        self.end_release();
        let part = self.part()?;
        if part.releases.last().is_some_and(|last| version::compare(&last.parsed, &parsed).is_ge()) {
            return Err("not after the release above");
        }
        let before = part.releases.last();
        let release = Release {
            version: version.to_owned(),
            parsed,
            date: Some(date),
            server_args: before.map(|before| before.server_args.clone()).unwrap_or_default(),
            agent_args: before.map(|before| before.agent_args.clone()).unwrap_or_default(),
            features: before.map(|before| before.features.clone()).unwrap_or_default(),
            charts: before.map(|before| before.charts.clone()).unwrap_or_default(),
            images: before.map(|before| before.images.clone()).unwrap_or_default(),
        };
        self.release = Some(release);
        Ok(())
    }

    fn arguments(&mut self, server: bool, rest: &str) -> Result<(), &'static str> {
        let mut changed: Vec<(Arc<str>, Option<Argument>)> = Vec::new();
        for word in rest.split_whitespace() {
            changed.push(match word.strip_prefix('-') {
                Some(name) => (self.word(name), None),
                None => {
                    let (name, of) = word.split_once(':').ok_or("an argument has no type")?;
                    (self.word(name), Some(argument(of)))
                }
            });
        }
        let release = self.release.as_mut().ok_or("no release was named")?;
        let args = if server { &mut release.server_args } else { &mut release.agent_args };
        let args: &mut Arguments = Arc::make_mut(args);
        apply(args, changed)
    }

    fn versions(&mut self, key: &str, rest: &str) -> Result<(), &'static str> {
        let mut changed: Vec<(Arc<str>, Option<Arc<str>>)> = Vec::new();
        for word in rest.split_whitespace() {
            changed.push(match word.strip_prefix('-') {
                Some(name) => (self.word(name), None),
                None => {
                    let (name, value) = word.split_once('=').ok_or("a name has no value")?;
                    (self.word(name), Some(self.word(value)))
                }
            });
        }
        let release = self.release.as_mut().ok_or("no release was named")?;
        let versions: &mut Versions = Arc::make_mut(match key {
            "feature" => &mut release.features,
            "chart" => &mut release.charts,
            _ => &mut release.images,
        });
        apply(versions, changed)
    }

    fn word(&mut self, word: &str) -> Arc<str> {
        if let Some(known) = self.words.get(word) {
            return known.clone();
        }
        let shared: Arc<str> = word.into();
        self.words.insert(word.into(), shared.clone());
        shared
    }
}

fn apply<T>(
    map: &mut BTreeMap<Arc<str>, T>,
    changed: Vec<(Arc<str>, Option<T>)>,
) -> Result<(), &'static str> {
    for (name, value) in changed {
        match value {
            Some(value) => drop(map.insert(name, value)),
            None => drop(map.remove(&name).ok_or("what goes was not there")?),
        }
    }
    Ok(())
}

/// `TYPE?=DEFAULT|OPTION/OPTION`
fn argument(text: &str) -> Argument {
    let (text, options) = text.split_once('|').unwrap_or((text, ""));
    let (kind, default) = text.split_once('=').unwrap_or((text, ""));
    let default = match default {
        "" => None,
        "true" => Some(Value::Bool(true)),
        "false" => Some(Value::Bool(false)),
        text => Some(Value::from(text)),
    };
    let options = options.split('/').filter(|option| !option.is_empty()).map(Value::from).collect();
    let nullable = kind.ends_with('?');
    Argument { kind: kind.trim_end_matches('?').to_owned(), default, options, nullable }
}

fn pair(text: &str) -> Result<(&str, &str), &'static str> {
    text.split_once(' ').ok_or("two words are expected")
}

fn day(text: &str) -> Result<Date, &'static str> {
    text.parse().map_err(|_| "not a day")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, line: usize, what: &str) {
        let error = read(text).expect_err("this is no table");
        assert_eq!(error.to_string(), format!("line {line}: {what}"));
    }

    #[test]
    fn releases_have_what_those_before_them_have_but_for_what_they_say() {
        let catalog = read(
            "date 2026-01-02\n\
             distribution k3s\n\
             end-of-life 1.35 2027-02-28\n\
             channel stable v1.35.0+k3s1\n\
             release v1.35.0+k3s1 2025-12-20\n\
             server cni:array=calico|canal/multus,canal disable-etcd:boolean=false\n\
             agent profile:enum?|cis\n\
             image pause=3.6,3.7 busybox=1\n\
             # a remark\n\
             \n\
             release v1.35.1+k3s1 2026-01-02\n\
             server -disable-etcd prime:boolean\n\
             image -busybox pause=3.8\n",
        )
        .unwrap();
        let [first, second] = catalog.k3s.list() else { panic!("{:?}", catalog.k3s) };
        let cni = &first.server_args["cni"];
        assert_eq!((cni.kind.as_str(), cni.options.len(), cni.nullable), ("array", 2, false));
        assert_eq!(cni.default, Some("calico".into()));
        assert!(first.agent_args["profile"].nullable);
        assert_eq!(first.server_args["disable-etcd"].default, Some(false.into()));
        assert_eq!(second.server_args.keys().map(|name| &**name).collect::<Vec<_>>(), ["cni", "prime"]);
        assert_eq!(&*first.images["pause"], "3.6,3.7");
        assert_eq!((second.images.len(), &*second.images["pause"]), (1, "3.8"));
        assert!(Arc::ptr_eq(&first.agent_args, &second.agent_args), "what is the same is there once");
        assert_eq!(catalog.k3s.channel("stable"), Some("v1.35.0+k3s1"));
        assert_eq!(catalog.end_of_life("v1.35.9+k3s1"), Some("2027-02-28".parse().unwrap()));
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        refused("release v1.35.0+k3s1 2025-12-20", 1, "no distribution was named");
        refused("distribution k4s", 1, "there is no such distribution");
        refused("distribution k3s\nserver a:string", 2, "no release was named");
        refused("distribution k3s\nrelease 1.35 2025-12-20", 2, "not a version");
        refused("distribution k3s\nrelease v1.35.0+k3s1 yesterday", 2, "not a day");
        let two = "distribution k3s\nrelease v1.35.1+k3s1 2025-12-20\nrelease v1.35.0+k3s1 2025-12-20";
        refused(two, 3, "not after the release above");
        refused("distribution k3s\nrelease v1.35.1+k3s1 2025-12-20\nchart -x", 3, "what goes was not there");
        refused("colour blue", 1, "the first word is not known");
    }
}
