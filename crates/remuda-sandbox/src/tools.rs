//! `systemctl` and `journalctl` of a machine: small, but with the words, texts and exit codes scripts rely on.

use std::{
    fs,
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    control::{self, Request},
    init::journal,
};

fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn complain(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

pub(crate) fn systemctl(args: &[&str]) -> ExitCode {
    let line = match Line::parse(args) {
        Ok(line) => line,
        Err(problem) => {
            complain(&format!("systemctl: {problem}\n"));
            return ExitCode::FAILURE;
        }
    };
    if line.version {
        print("systemd 252 (remuda sandbox)\n");
        return ExitCode::SUCCESS;
    }
    if line.user {
        complain("Failed to connect to bus: No medium found\n");
        return ExitCode::FAILURE;
    }
    match control::ask(Path::new(control::SOCKET), &line.request) {
        Ok(reply) => {
            if !line.quiet {
                print(&reply.out);
            }
            // What enabling did is told on the error stream, and hushed as well.
            if !(line.quiet && reply.code == 0) {
                complain(&reply.err);
            }
            ExitCode::from(reply.code)
        }
        Err(error) => {
            complain(&format!("Failed to connect to the service manager: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Words of a command line, one after the other. What an option is about comes behind `=`, or as the next word.
struct Arguments<'a> {
    words: std::slice::Iter<'a, &'a str>,
    about: Option<&'a str>,
}

impl<'a> Arguments<'a> {
    fn new(words: &'a [&'a str]) -> Self {
        Self { words: words.iter(), about: None }
    }

    /// The next word, or the name of the next option.
    fn next(&mut self) -> Option<&'a str> {
        let word = *self.words.next()?;
        let (name, about) = match word.split_once('=') {
            Some((name, about)) if word.starts_with("--") => (name, Some(about)),
            _ => (word, None),
        };
        self.about = about;
        Some(name)
    }

    /// What the option is about that came last.
    fn value(&mut self) -> String {
        self.about.take().or_else(|| self.words.next().copied()).unwrap_or_default().to_owned()
    }

    /// All that is left, whatever it looks like.
    fn rest(&mut self) -> impl Iterator<Item = &'a str> {
        self.words.by_ref().copied()
    }
}

#[derive(Debug, Default, PartialEq)]
struct Line {
    request: Request,
    quiet: bool,
    user: bool,
    version: bool,
}

impl Line {
    fn parse(args: &[&str]) -> Result<Self, String> {
        let mut line = Self::default();
        let mut words = Vec::new();
        let mut args = Arguments::new(args);
        while let Some(name) = args.next() {
            match name {
                "-q" | "--quiet" => line.quiet = true,
                "--user" => line.user = true,
                "--version" => line.version = true,
                "--now" => line.request.now = true,
                "--no-block" => line.request.no_block = true,
                "--value" => line.request.value = true,
                "-P" => {
                    line.request.value = true;
                    line.request.properties.push(args.value());
                }
                "-p" | "--property" => line.request.properties.push(args.value()),
                "-s" | "--signal" => line.request.signal = args.value(),
                "-n" | "--lines" => line.request.lines = args.value().parse().ok(),
                "-t" | "--type" | "--state" | "-o" | "--output" | "-H" | "--job-mode" | "--kill-who"
                | "--kill-whom" | "--root" | "-M" => drop(args.value()),
                "--" => words.extend(args.rest()),
                flag if flag.starts_with('-') && flag.len() > 1 => {
                    // Flags that only change how things look.
                    let harmless = flag.starts_with("--no-") || flag.starts_with("--full");
                    let known = [
                        "-l",
                        "-a",
                        "-f",
                        "-r",
                        "--all",
                        "--force",
                        "--plain",
                        "--system",
                        "--runtime",
                        "--wait",
                    ];
                    if !harmless && !known.contains(&flag) {
                        return Err(format!("unrecognized option '{flag}'"));
                    }
                }
                word => words.push(word),
            }
        }
        let mut words = words.into_iter().map(str::to_owned);
        line.request.verb = words.next().unwrap_or_else(|| "list-units".into());
        line.request.units = words.collect();
        Ok(line)
    }
}

/// How often a followed log is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// What is asked of the logs.
#[derive(Debug, Default, PartialEq)]
struct Query {
    /// All of them, if none is named.
    units: Vec<String>,
    lines: Option<usize>,
    /// Between these, as lines begin.
    since: Option<String>,
    until: Option<String>,
    follow: bool,
}

impl Query {
    fn parse(args: &[&str], now: Timestamp) -> Result<Self, String> {
        let mut query = Self::default();
        let mut args = Arguments::new(args);
        while let Some(name) = args.next() {
            let time = |text: String| match journal::moment(&text, now) {
                Some(moment) => Ok(Some(journal::stamp(moment))),
                None => Err(format!("Failed to parse timestamp: {text}")),
            };
            match name {
                "-u" | "--unit" | "-xeu" | "-eu" | "-xu" => query.units.push(args.value()),
                "-n" | "--lines" => query.lines = args.value().parse().ok(),
                "-f" | "--follow" => query.follow = true,
                "-fu" => {
                    query.units.push(args.value());
                    query.follow = true;
                }
                "-S" | "--since" => query.since = time(args.value())?,
                "-U" | "--until" => query.until = time(args.value())?,
                "-o" | "--output" | "-p" | "--priority" => drop(args.value()),
                _ => {}
            }
        }
        Ok(query)
    }

    fn wants(&self, line: &str) -> bool {
        self.since.as_deref().is_none_or(|since| line >= since)
            && self.until.as_deref().is_none_or(|until| line <= until)
    }
}

pub(crate) fn journalctl(args: &[&str]) -> ExitCode {
    let query = match Query::parse(args, Timestamp::now()) {
        Ok(query) => query,
        Err(problem) => {
            complain(&format!("{problem}\n"));
            return ExitCode::FAILURE;
        }
    };
    let full = |unit: &String| match unit.ends_with(".service") {
        true => unit.clone(),
        false => format!("{unit}.service"),
    };
    let units = if query.units.is_empty() { all_units() } else { query.units.iter().map(full).collect() };
    let mut text: Vec<String> = units.iter().flat_map(|unit| journal::lines(unit)).collect();
    text.retain(|line| query.wants(line));
    // Lines begin with their time; those of one unit are in order.
    if units.len() > 1 {
        text.sort();
    }
    let skipped = text.len().saturating_sub(query.lines.unwrap_or(usize::MAX));
    text.drain(..skipped);
    if text.is_empty() && !query.follow {
        print("-- No entries --\n");
    }
    text.iter().for_each(|line| print(&format!("{line}\n")));
    if let ([unit], true) = (units.as_slice(), query.follow) {
        follow_file(&Path::new(journal::DIRECTORY).join(format!("{unit}.log")));
    }
    ExitCode::SUCCESS
}

fn all_units() -> Vec<String> {
    let entries = fs::read_dir(journal::DIRECTORY).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".log")?.to_owned());
    entries.filter_map(name).collect()
}

fn follow_file(path: &Path) {
    let mut at = fs::metadata(path).map_or(0, |meta| meta.len());
    loop {
        std::thread::sleep(LOOK);
        let Ok(mut file) = fs::File::open(path) else { continue };
        if file.metadata().is_ok_and(|meta| meta.len() < at) {
            at = 0;
        }
        let mut new = Vec::new();
        if file.seek(SeekFrom::Start(at)).and_then(|_| file.read_to_end(&mut new)).is_ok() {
            at += new.len() as u64;
            if std::io::stdout().write_all(&new).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_install_scripts_use_are_understood() {
        let line = Line::parse(&["--no-block", "restart", "k3s-agent"]).unwrap();
        assert!(line.request.no_block);
        assert_eq!(
            (line.request.verb.as_str(), line.request.units.as_slice()),
            ("restart", &["k3s-agent".to_owned()][..])
        );
        let line = Line::parse(&["is-enabled", "--quiet", "nm-cloud-setup.service"]).unwrap();
        assert!(line.quiet);
        let line = Line::parse(&["show", "-p", "ActiveState,SubState", "--value", "x"]).unwrap();
        assert_eq!((line.request.properties[0].as_str(), line.request.value), ("ActiveState,SubState", true));
        assert_eq!(Line::parse(&["show", "--property=Id", "x"]).unwrap().request.properties, ["Id"]);
        assert!(Line::parse(&["--frobnicate", "x"]).is_err());
    }

    #[test]
    fn logs_are_asked_for_as_install_scripts_ask() {
        let now: Timestamp = "2026-03-05T10:00:00Z".parse().unwrap();
        let query = Query::parse(&["-u", "k3s.service", "--since=Thu 2026-03-05 09:30:00 UTC"], now).unwrap();
        assert_eq!(query.units, ["k3s.service"]);
        assert!(!query.wants("2026-03-05T09:29:59.999999Z k3s[7]: old"));
        assert!(query.wants("2026-03-05T09:30:00.000000Z k3s[9]: new"));
        let query = Query::parse(&["-b", "-u", "web", "-S", "-1h", "-U", "10min ago"], now).unwrap();
        assert_eq!(query.units, ["web"], "-b takes no word of its own");
        assert!(
            query.wants("2026-03-05T09:15:00.000000Z x") && !query.wants("2026-03-05T09:55:00.000000Z x")
        );
        let query = Query::parse(&["-u", "rancher-system-agent", "-u", "k3s", "-n", "100"], now).unwrap();
        assert_eq!((query.units.len(), query.lines), (2, Some(100)));
        assert!(Query::parse(&["--since", "whenever"], now).unwrap_err().contains("whenever"));
    }
}
