//! `remuda versions`, and what other commands want to know of releases.

use std::collections::BTreeMap;

use clap::Args;
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use kube::Client;
use remuda_distro::{
    Catalog, Distro,
    version::{self, Minor},
    wanted::Alias,
};
use remuda_names::path;
use serde::{Deserialize, Serialize};

use crate::{
    failure::{Code, Failure},
    generate::Distribution,
    near,
    output::{Format, Out},
    session::{Global, Session},
    table::{Cell, Table, Tone},
};

#[derive(Args, Debug)]
pub struct Versions {
    /// Of one distribution [default: both]
    #[arg(long, value_enum)]
    pub distribution: Option<Distribution>,

    /// Only what this channel stands for: stable, latest or a minor version such as v1.35
    #[arg(long, value_name = "CHANNEL", conflicts_with = "all")]
    pub channel: Option<String>,

    /// Every release, not only those of channels
    #[arg(long)]
    pub all: bool,

    /// What this program knows itself, without asking a server
    #[arg(long)]
    pub shipped: bool,

    /// How to print them
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,

    #[command(flatten)]
    pub global: Global,
}

/// A line: a channel or a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    distribution: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    channel: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    released: Option<Date>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_of_life: Option<Date>,
}

/// What the server answers for a distribution.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    source: String,
    date: Option<Date>,
    data: Vec<Item>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Item {
    id: String,
    latest: String,
    released: Option<Date>,
    end_of_life: Option<Date>,
}

/// Where the data is from and how old it is.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    lines: Vec<Line>,
    source: String,
    date: Option<Date>,
}

async fn ask(client: &Client, distro: Distro, what: &str) -> Result<Answer, Failure> {
    let prefix = match distro {
        Distro::K3s => path::K3S_RELEASES,
        Distro::Rke2 => path::RKE2_RELEASES,
    };
    let doing = format!("read the {what} of {}", distro.title());
    let request = http::Request::get(format!("{prefix}/{what}")).body(Vec::new());
    let request = request.map_err(|error| Failure::new(Code::Other, error.to_string()))?;
    client.request::<Answer>(request).await.map_err(|error| Failure::api(&doing, &error))
}

impl Versions {
    fn distros(&self) -> Vec<Distro> {
        self.distribution.map_or(Distro::ALL.to_vec(), |one| vec![one.distro()])
    }

    async fn of_server(&self, client: &Client) -> Result<Told, Failure> {
        let mut told = Told::default();
        for distro in self.distros() {
            let answer = ask(client, distro, if self.all { "releases" } else { "channels" }).await?;
            (told.source, told.date) = (answer.source, answer.date);
            told.lines.extend(answer.data.into_iter().map(|item| {
                let (channel, version) = match self.all {
                    true => (String::new(), item.id),
                    false => (item.id, item.latest),
                };
                let (released, end_of_life) = (item.released, item.end_of_life);
                Line { distribution: distro.name(), channel, version, released, end_of_life }
            }));
        }
        Ok(told)
    }

    fn of_program(&self) -> Told {
        let catalog = Catalog::shipped();
        let mut told = Told { source: catalog.source.to_string(), date: catalog.date, ..Told::default() };
        for distro in self.distros() {
            let releases = catalog.of(distro);
            let line = |channel: String, version: &str| Line {
                distribution: distro.name(),
                channel,
                version: version.to_owned(),
                released: releases.find(version).and_then(|release| release.date),
                end_of_life: catalog.end_of_life(version),
            };
            match self.all {
                true => told.lines.extend(
                    releases.list().iter().rev().map(|release| line(String::new(), &release.version)),
                ),
                false => {
                    let channels = releases.channels();
                    told.lines.extend(channels.into_iter().map(|(name, version)| line(name, version)));
                }
            }
        }
        told
    }
}

/// What this program knows itself.
pub(crate) fn shipped(arguments: &Versions) -> Result<(), Failure> {
    print(&Out::default(), arguments, arguments.of_program(), Timestamp::now())
}

pub(crate) async fn run(session: &Session, arguments: &Versions) -> Result<(), Failure> {
    let told = match arguments.of_server(&session.client).await {
        // A server that has no such door.
        Err(failure) if failure.code == Code::NotFound => arguments.of_program(),
        told => told?,
    };
    print(&session.out, arguments, told, Timestamp::now())
}

fn print(out: &Out, arguments: &Versions, mut told: Told, now: Timestamp) -> Result<(), Failure> {
    // Clients of Rancher look for it; for people it is the same as another.
    told.lines.retain(|line| line.channel != "default");
    if let Some(wanted) = &arguments.channel {
        let minor = Minor::parse(wanted).map(|minor| format!("v{minor}"));
        let wanted = minor.as_deref().unwrap_or(wanted);
        let known: Vec<String> = told.lines.iter().map(|line| line.channel.clone()).collect();
        told.lines.retain(|line| line.channel == *wanted);
        if told.lines.is_empty() {
            let failure = Failure::new(Code::NotFound, format!("there is no channel {wanted}"));
            return Err(failure.hint(near::hint(
                wanted,
                known.iter().map(String::as_str),
                "remuda versions",
            )));
        }
    }
    match arguments.output {
        Format::Name => told.lines.iter().for_each(|line| out.line(&line.version)),
        Format::Json | Format::Yaml => return out.document(&told.lines, arguments.output),
        Format::Table | Format::Wide => {
            let today = now.to_zoned(TimeZone::UTC).date();
            out.text(&table(&told.lines, arguments.all, today));
            out.note(&origin(&told, today));
        }
    }
    Ok(())
}

fn table(lines: &[Line], all: bool, today: Date) -> String {
    let mut table = match all {
        true => Table::new(["DISTRIBUTION", "VERSION", "RELEASED", "END OF LIFE"]),
        false => Table::new(["DISTRIBUTION", "CHANNEL", "VERSION", "END OF LIFE"]),
    };
    let day = |date: Option<Date>| date.map(|date| date.to_string()).unwrap_or_default();
    for line in lines {
        let tone = if line.end_of_life.is_some_and(|last| last < today) { Tone::Bad } else { Tone::Plain };
        let end = Cell::toned(day(line.end_of_life), tone);
        table.row(match all {
            true => {
                vec![line.distribution.into(), line.version.as_str().into(), day(line.released).into(), end]
            }
            false => {
                vec![
                    line.distribution.into(),
                    line.channel.as_str().into(),
                    line.version.as_str().into(),
                    end,
                ]
            }
        });
    }
    table.render("")
}

/// Where the data is from, and how old it is.
fn origin(told: &Told, today: Date) -> String {
    let age = told.date.and_then(|date| today.since(date).ok()).map(|age| age.get_days());
    match (told.date, age) {
        (Some(date), Some(days)) if days > 0 => {
            format!("release data: {}, of {date} ({days} days old)", told.source)
        }
        (Some(date), _) => format!("release data: {}, of {date}", told.source),
        (None, _) => format!("release data: {}", told.source),
    }
}

/// The release an alias stands for on this server.
pub(crate) async fn resolve(session: &Session, alias: &Alias, distro: Distro) -> Result<String, Failure> {
    let channel = match alias {
        Alias::Channel(name) => name.clone(),
        Alias::Minor(minor) => format!("v{minor}"),
        Alias::Patch(version) => return Ok(format!("v{version}+{}", distro.first_build())),
    };
    let answer = ask(&session.client, distro, "channels").await?;
    let known: Vec<&str> = answer.data.iter().map(|item| item.id.as_str()).collect();
    match answer.data.iter().find(|item| item.id == channel) {
        Some(item) => Ok(item.latest.clone()),
        None => {
            let message = format!("no release of {} is known as {channel}", distro.title());
            let hint = near::hint(&channel, known.into_iter(), "remuda versions");
            Err(Failure::new(Code::NotFound, message).hint(hint))
        }
    }
}

/// The last days on which minor versions are maintained.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends(BTreeMap<(Distro, Minor), Date>);

impl Ends {
    /// Of what these versions are of. What a server does not say is what this program knows.
    pub(crate) async fn of(client: &Client, versions: impl IntoIterator<Item = &str>) -> Ends {
        let mut ends = Ends::default();
        let shipped = Catalog::shipped();
        let mut distros: Vec<Distro> = Vec::new();
        for text in versions {
            let Some(minor) = version::parse(text).map(|version| Minor::of(&version)) else { continue };
            let Some(distro) = Distro::reported(text) else { continue };
            if let Some(date) = shipped.end_of_life(text) {
                ends.0.insert((distro, minor), date);
            }
            if !distros.contains(&distro) {
                distros.push(distro);
            }
        }
        for distro in distros {
            let Ok(answer) = ask(client, distro, "channels").await else { continue };
            for item in answer.data {
                if let (Some(minor), Some(date)) = (Minor::parse(&item.id), item.end_of_life) {
                    ends.0.insert((distro, minor), date);
                }
            }
        }
        ends
    }

    /// The day a version was last maintained on, if that is over.
    pub(crate) fn ended(&self, text: &str, now: Timestamp) -> Option<Date> {
        let minor = Minor::of(&version::parse(text)?);
        let last = *self.0.get(&(Distro::reported(text)?, minor))?;
        (last < now.to_zoned(TimeZone::UTC).date()).then_some(last)
    }
}

/// Whether a server knows releases of a distribution, and not this one.
pub(crate) async fn is_unknown(client: &Client, text: &str) -> bool {
    let Some(distro) = Distro::reported(text) else { return false };
    let Ok(answer) = ask(client, distro, "releases").await else { return false };
    !answer.data.is_empty() && !answer.data.iter().any(|item| item.id == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(channel: Option<&str>, all: bool) -> Versions {
        Versions {
            distribution: Some(Distribution::K3s),
            channel: channel.map(str::to_owned),
            all,
            shipped: true,
            output: Format::Table,
            global: Global::default(),
        }
    }

    #[test]
    fn channels_and_what_they_stand_for_make_a_table() {
        let mut told = arguments(None, false).of_program();
        told.lines.retain(|line| ["stable", "v1.33"].contains(&line.channel.as_str()));
        let text = table(&told.lines, false, "2026-11-17".parse().unwrap());
        assert_eq!(
            anstream::adapter::strip_str(&text).to_string(),
            "DISTRIBUTION   CHANNEL   VERSION         END OF LIFE\n\
             k3s            stable    v1.36.3+k3s1    2027-06-28\n\
             k3s            v1.33     v1.33.13+k3s2   2026-06-28\n"
        );
        assert_eq!(
            origin(&told, "2026-08-31".parse().unwrap()),
            "release data: shipped with this program, of 2026-08-21 (10 days old)"
        );
        let all = arguments(None, true).of_program();
        assert_eq!(all.lines[0].version, "v1.36.3+k3s1");
        assert!(all.lines.len() > 30);
    }

    #[test]
    fn a_channel_that_is_not_there_is_named() {
        let told = arguments(Some("stabel"), false);
        let failure = shipped(&told).expect_err("there is none");
        assert_eq!(failure.message, "there is no channel stabel");
        assert!(failure.hint.is_some_and(|hint| hint.contains("stable")));
    }
}
