//! Unit files, as far as services need them.
//!
//! The text form is systemd's: sections, `Key=value`, continuation lines, lists that an empty value resets,
//! drop-in files, quoting, `%` specifiers and variables in command lines. Keys that only tune things are
//! ignored, as an older systemd ignores keys it does not know.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

pub(crate) mod command;

use command::{ExecLine, words};

/// When a started service counts as up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    #[default]
    Simple,
    Notify,
    Oneshot,
    Forking,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Restart {
    #[default]
    No,
    Always,
    OnSuccess,
    OnFailure,
    OnAbnormal,
    OnAbort,
}

/// Which processes of a service are signalled when it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum KillMode {
    #[default]
    ControlGroup,
    Mixed,
    Process,
    None,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

/// A service as its files describe it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unit {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) description: String,
    pub(crate) kind: Kind,
    pub(crate) start_pre: Vec<ExecLine>,
    pub(crate) start: Vec<ExecLine>,
    pub(crate) start_post: Vec<ExecLine>,
    pub(crate) reload: Vec<ExecLine>,
    pub(crate) stop: Vec<ExecLine>,
    pub(crate) stop_post: Vec<ExecLine>,
    pub(crate) environment: Vec<(String, String)>,
    /// Path, and whether it may be missing.
    pub(crate) environment_files: Vec<(String, bool)>,
    pub(crate) working_directory: String,
    pub(crate) user: String,
    pub(crate) restart: Restart,
    pub(crate) restart_sec: Duration,
    /// `None` waits for ever.
    pub(crate) timeout_start: Option<Duration>,
    pub(crate) timeout_stop: Option<Duration>,
    pub(crate) kill_mode: KillMode,
    pub(crate) kill_signal: String,
    pub(crate) remain_after_exit: bool,
    pub(crate) pid_file: String,
    pub(crate) success_codes: Vec<String>,
    pub(crate) start_limit: (u32, Duration),
    pub(crate) requires: Vec<String>,
    pub(crate) wants: Vec<String>,
    pub(crate) after: Vec<String>,
    pub(crate) before: Vec<String>,
    /// `ConditionPathExists` and its kin: key and value.
    pub(crate) conditions: Vec<(String, String)>,
    pub(crate) wanted_by: Vec<String>,
    pub(crate) required_by: Vec<String>,
    pub(crate) aliases: Vec<String>,
}

/// `Section.Key` to its values, in order.
type Values = BTreeMap<String, Vec<String>>;

impl Unit {
    /// Reads a unit from its file and the drop-ins after it.
    pub(crate) fn parse(name: &str, path: PathBuf, texts: &[String]) -> Self {
        let mut values = Values::new();
        for text in texts {
            read(text, &mut values);
        }
        let reader = Reader { name, values: &values };
        let kind = match reader.last("Service.Type").as_str() {
            "notify" | "notify-reload" => Kind::Notify,
            "oneshot" => Kind::Oneshot,
            "forking" => Kind::Forking,
            // A service without a command is a oneshot by definition.
            "" if reader.all("Service.ExecStart").is_empty() => Kind::Oneshot,
            _ => Kind::Simple,
        };
        let default_start = if kind == Kind::Oneshot { None } else { Some(Duration::from_secs(90)) };
        let both = reader.last("Service.TimeoutSec");
        let timeout = |key: &str, default: Option<Duration>| {
            let own = reader.last(key);
            let text = if own.is_empty() { &both } else { &own };
            if text.is_empty() { default } else { duration(text).unwrap_or(default).filter(|d| !d.is_zero()) }
        };
        let time = |key: &str, default: Duration| duration(&reader.last(key)).flatten().unwrap_or(default);
        let number = |key: &str| reader.last(key).parse::<u32>().ok();
        let conditions = values
            .iter()
            .filter_map(|(key, list)| Some((key.strip_prefix("Unit.")?, list)))
            .filter(|(key, _)| key.starts_with("Condition") || key.starts_with("Assert"))
            .flat_map(|(key, list)| list.iter().map(move |value| (key.to_owned(), reader.specify(value))))
            .collect();
        Self {
            name: name.to_owned(),
            path,
            description: reader.last("Unit.Description"),
            kind,
            start_pre: reader.commands("Service.ExecStartPre"),
            start: reader.commands("Service.ExecStart"),
            start_post: reader.commands("Service.ExecStartPost"),
            reload: reader.commands("Service.ExecReload"),
            stop: reader.commands("Service.ExecStop"),
            stop_post: reader.commands("Service.ExecStopPost"),
            environment: reader.assignments("Service.Environment"),
            environment_files: reader
                .all("Service.EnvironmentFile")
                .into_iter()
                .map(|file| match file.strip_prefix('-') {
                    Some(file) => (file.to_owned(), true),
                    None => (file, false),
                })
                .collect(),
            working_directory: reader.last("Service.WorkingDirectory"),
            user: reader.last("Service.User"),
            restart: match reader.last("Service.Restart").as_str() {
                "always" => Restart::Always,
                "on-success" => Restart::OnSuccess,
                "on-failure" => Restart::OnFailure,
                "on-abnormal" | "on-watchdog" => Restart::OnAbnormal,
                "on-abort" => Restart::OnAbort,
                _ => Restart::No,
            },
            restart_sec: time("Service.RestartSec", Duration::from_millis(100)),
            timeout_start: timeout("Service.TimeoutStartSec", default_start),
            timeout_stop: timeout("Service.TimeoutStopSec", Some(Duration::from_secs(90))),
            kill_mode: match reader.last("Service.KillMode").as_str() {
                "mixed" => KillMode::Mixed,
                "process" => KillMode::Process,
                "none" => KillMode::None,
                _ => KillMode::ControlGroup,
            },
            kill_signal: reader.last("Service.KillSignal"),
            remain_after_exit: is_yes(&reader.last("Service.RemainAfterExit")),
            pid_file: reader.last("Service.PIDFile"),
            success_codes: reader.list("Service.SuccessExitStatus"),
            start_limit: (
                number("Unit.StartLimitBurst").or_else(|| number("Service.StartLimitBurst")).unwrap_or(5),
                time(
                    "Unit.StartLimitIntervalSec",
                    time("Service.StartLimitInterval", Duration::from_secs(10)),
                ),
            ),
            requires: [
                reader.list("Unit.Requires"),
                reader.list("Unit.BindsTo"),
                reader.list("Unit.Requisite"),
            ]
            .concat(),
            wants: reader.list("Unit.Wants"),
            after: reader.list("Unit.After"),
            before: reader.list("Unit.Before"),
            conditions,
            wanted_by: reader.list("Install.WantedBy"),
            required_by: reader.list("Install.RequiredBy"),
            aliases: reader.list("Install.Alias"),
        }
    }

    /// Whether that end of the main process is what was meant.
    pub(crate) fn is_success(&self, exit: Exit) -> bool {
        // These signals are how services are asked to end.
        const POLITE: [i32; 4] = [1, 2, 13, 15];
        match exit {
            Exit::Code(0) => true,
            Exit::Code(code) => self.success_codes.iter().any(|text| text.parse() == Ok(code)),
            Exit::Signal(number) => {
                let polite = self.kind != Kind::Oneshot && POLITE.contains(&number);
                polite || self.success_codes.iter().any(|text| signal_number(text) == Some(number))
            }
        }
    }

    pub(crate) fn should_restart(&self, exit: Exit) -> bool {
        let success = self.is_success(exit);
        match self.restart {
            Restart::No => false,
            Restart::Always => true,
            Restart::OnSuccess => success,
            Restart::OnFailure => !success,
            Restart::OnAbnormal | Restart::OnAbort => !success && matches!(exit, Exit::Signal(_)),
        }
    }
}

/// Looks values up and fills specifiers in.
#[derive(Clone, Copy)]
struct Reader<'a> {
    name: &'a str,
    values: &'a Values,
}

impl Reader<'_> {
    fn all(&self, key: &str) -> Vec<String> {
        let found = self.values.get(key).map(Vec::as_slice).unwrap_or_default();
        found.iter().map(|value| self.specify(value)).collect()
    }

    fn last(&self, key: &str) -> String {
        self.all(key).pop().unwrap_or_default()
    }

    fn list(&self, key: &str) -> Vec<String> {
        self.all(key).iter().flat_map(|value| words(value)).collect()
    }

    fn commands(&self, key: &str) -> Vec<ExecLine> {
        // Specifiers are filled in after splitting, so that a value with a space stays one word.
        let found = self.values.get(key).map(Vec::as_slice).unwrap_or_default();
        found.iter().flat_map(|value| ExecLine::parse_all(value, |word| self.specify(word))).collect()
    }

    fn assignments(&self, key: &str) -> Vec<(String, String)> {
        let split = |word: String| word.split_once('=').map(|(name, value)| (name.into(), value.into()));
        self.all(key).iter().flat_map(|value| words(value)).filter_map(split).collect()
    }

    fn specify(&self, value: &str) -> String {
        if !value.contains('%') {
            return value.to_owned();
        }
        let stem = self.name.rsplit_once('.').map_or(self.name, |(stem, _)| stem);
        let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
        let mut out = String::with_capacity(value.len());
        let mut letters = value.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                out.push(letter);
                continue;
            }
            match letters.next() {
                Some('n') => out.push_str(self.name),
                Some('N') => out.push_str(stem),
                Some('p') => out.push_str(prefix),
                Some('i' | 'I') => out.push_str(instance),
                Some('H' | 'l') => out.push_str(&hostname()),
                Some('t') => out.push_str("/run"),
                Some('S') => out.push_str("/var/lib"),
                Some('C') => out.push_str("/var/cache"),
                Some('L') => out.push_str("/var/log"),
                Some('E') => out.push_str("/etc"),
                Some('T') => out.push_str("/tmp"),
                Some('V') => out.push_str("/var/tmp"),
                Some('h') => out.push_str("/root"),
                Some('u') => out.push_str("root"),
                Some('U') => out.push('0'),
                Some('%') => out.push('%'),
                Some(other) => {
                    out.push('%');
                    out.push(other);
                }
                None => out.push('%'),
            }
        }
        out
    }
}

fn hostname() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Adds the settings of one file to those read before.
fn read(text: &str, values: &mut Values) {
    /// More than this in one unit is not a unit.
    const MOST: usize = 10_000;
    let mut section = String::new();
    let mut held = String::new();
    let mut count = 0;
    for line in text.lines() {
        let trimmed = line.trim();
        if held.is_empty() && (trimmed.is_empty() || trimmed.starts_with(['#', ';'])) {
            continue;
        }
        // Comments may stand between continued lines.
        if !held.is_empty() && trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(start) = line.trim_end().strip_suffix('\\') {
            held.push_str(start.trim_start());
            held.push(' ');
            continue;
        }
        held.push_str(trimmed);
        let whole = std::mem::take(&mut held);
        let whole = whole.trim();
        if let Some(name) = whole.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
            continue;
        }
        let Some((key, value)) = whole.split_once('=') else { continue };
        count += 1;
        if count > MOST {
            break;
        }
        let list = values.entry(format!("{section}.{}", key.trim())).or_default();
        match value.trim() {
            "" => list.clear(),
            value => list.push(value.to_owned()),
        }
    }
}

fn is_yes(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "1" | "yes" | "true" | "on" | "y" | "t")
}

/// `5`, `5s`, `1min 30s`, `infinity`. The outer `None` is no time at all, the inner one endless.
pub(crate) fn duration(text: &str) -> Option<Option<Duration>> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("infinity") {
        return Some(None);
    }
    let mut total = 0.0f64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits =
            rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|letter: char| !letter.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let scale = match unit {
            "us" | "usec" | "µs" => 1e-6,
            "ms" | "msec" => 1e-3,
            "" | "s" | "sec" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86400.0,
            "w" | "week" | "weeks" => 604_800.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * scale;
        rest = after.trim_start();
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(total).ok()).flatten().map(Some)
}

/// The number of a signal given by name or number.
pub(crate) fn signal_number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    name.parse::<nix::sys::signal::Signal>().ok().map(|signal| signal as i32)
}

#[cfg(test)]
mod tests;
