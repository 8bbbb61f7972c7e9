//! Progress on a terminal, and without one.

use std::{collections::BTreeMap, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::Snapshot;
use crate::{
    age,
    output::{self, Out, paint},
    table::shown,
    why::State,
};

pub(super) enum View {
    Drawn(Drawn),
    Told(Told),
}

impl View {
    pub(super) fn new(out: Out) -> View {
        match out.is_watched() {
            true => View::Drawn(Drawn::new()),
            false => View::Told(Told { out, said: BTreeMap::new() }),
        }
    }

    pub(super) fn show(&mut self, snapshot: &Snapshot, cluster: &str, elapsed: Duration) {
        match self {
            View::Drawn(drawn) => drawn.show(snapshot, cluster, elapsed),
            View::Told(told) => told.show(snapshot, cluster, elapsed),
        }
    }

    pub(super) fn trouble(&mut self, text: &str, elapsed: Duration) {
        match self {
            View::Drawn(drawn) => drawn.line("", text.to_owned(), State::Blocked, false),
            View::Told(told) => told.say("server", text, elapsed),
        }
    }

    /// Leaves the last state on the screen, as ordinary lines.
    pub(super) fn finish(&mut self) {
        if let View::Drawn(drawn) = self {
            let lines = std::mem::take(&mut drawn.lines);
            lines.values().for_each(|line| line.bar.finish_and_clear());
            let _ = drawn.bars.clear();
            lines.values().for_each(|line| output::note(&line.last));
        }
    }
}

/// Lines that are drawn over each other.
pub(super) struct Drawn {
    bars: MultiProgress,
    lines: BTreeMap<String, Line>,
    coloured: bool,
}

struct Line {
    bar: ProgressBar,
    /// As it is left behind.
    last: String,
}

impl Drawn {
    fn new() -> Drawn {
        let choice = anstream::AutoStream::choice(&std::io::stderr());
        let coloured = choice != anstream::ColorChoice::Never;
        Drawn { bars: MultiProgress::new(), lines: BTreeMap::new(), coloured }
    }

    fn show(&mut self, snapshot: &Snapshot, cluster: &str, elapsed: Duration) {
        self.erase("");
        let seconds = i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX);
        let text = format!(
            "{} {}/{} machines, {} {}",
            paint::strong(cluster),
            snapshot.ready,
            snapshot.wanted,
            shown(&snapshot.text),
            paint::faint(&age::short(seconds)),
        );
        let head = format!("{cluster}\u{0}");
        self.line(&head, text, snapshot.state, snapshot.reached);
        let known: Vec<String> =
            self.lines.keys().filter(|key| key.starts_with(&head) && **key != head).cloned().collect();
        for key in known {
            if !snapshot.rows.iter().any(|row| key == format!("{head}{}", row.name)) {
                self.erase(&key);
            }
        }
        let width = snapshot.rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
        for row in &snapshot.rows {
            let text = format!("{:<width$}  {:<8} {}", row.name, row.roles, shown(&row.text));
            self.line(&format!("{head}{}", row.name), text, row.state, row.state == State::Ready);
        }
    }

    fn erase(&mut self, key: &str) {
        if let Some(line) = self.lines.remove(key) {
            line.bar.finish_and_clear();
            self.bars.remove(&line.bar);
        }
    }

    fn line(&mut self, key: &str, text: String, state: State, done: bool) {
        let after = self.lines.range(..key.to_owned()).next_back().map(|(_, line)| line.bar.clone());
        let bars = &self.bars;
        let line = self.lines.entry(key.to_owned()).or_insert_with(|| {
            let bar = ProgressBar::new_spinner();
            let bar = match after {
                Some(after) => bars.insert_after(&after, bar),
                None => bars.insert(0, bar),
            };
            bar.enable_steady_tick(Duration::from_millis(120));
            Line { bar, last: String::new() }
        });
        let indent = if key.ends_with('\u{0}') || key.is_empty() { "" } else { "  " };
        let (mark, left) = match (done, state) {
            (true, _) => (paint::good("✓"), paint::good("✓")),
            (false, State::Blocked) => (paint::bad("✗"), paint::bad("✗")),
            (false, _) => ("{spinner:.yellow}".to_owned(), paint::busy("…")),
        };
        line.last = format!("{indent}{left} {text}");
        let (mark, text) = match self.coloured {
            true => (mark, text),
            false => (plain(&mark), plain(&text)),
        };
        if let Ok(style) = ProgressStyle::with_template(&format!("{indent}{mark} {{wide_msg}}")) {
            line.bar.set_style(style);
        }
        line.bar.set_message(text);
    }
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string().replace(":.yellow", "")
}

/// Every change is a line.
pub(super) struct Told {
    out: Out,
    said: BTreeMap<String, String>,
}

impl Told {
    fn show(&mut self, snapshot: &Snapshot, cluster: &str, elapsed: Duration) {
        for row in &snapshot.rows {
            self.say(&row.name, &row.text, elapsed);
        }
        let here = |name: &str| snapshot.rows.iter().any(|row| row.name == name);
        let gone: Vec<String> = self
            .said
            .iter()
            .filter(|(name, text)| name.starts_with(&format!("{cluster}-")) && !here(name) && *text != "gone")
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.say(&name, "gone", elapsed);
        }
        self.say(cluster, &snapshot.text, elapsed);
    }

    fn say(&mut self, name: &str, text: &str, elapsed: Duration) {
        if self.said.get(name).is_some_and(|said| said == text) {
            return;
        }
        self.said.insert(name.to_owned(), text.to_owned());
        let seconds = i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX);
        self.out.note(&format!("{:>6}  {name}: {}", age::short(seconds), shown(text)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::progress::Row;

    fn snapshot(text: &str, rows: &[(&str, &str)]) -> Snapshot {
        let row = |(name, text): &(&str, &str)| Row {
            name: (*name).to_owned(),
            roles: "all".to_owned(),
            text: (*text).to_owned(),
            state: State::Waiting,
        };
        Snapshot {
            cluster: "demo".to_owned(),
            text: text.to_owned(),
            state: State::Waiting,
            rows: rows.iter().map(row).collect(),
            ready: 0,
            wanted: 2,
            reached: false,
            lost: false,
        }
    }

    #[test]
    fn without_a_terminal_every_change_is_said_once() {
        let kept = Arc::new(Mutex::new(String::new()));
        let mut view = View::new(Out::Kept(kept.clone()));
        let mut show =
            |seconds, snapshot: &Snapshot| view.show(snapshot, "demo", Duration::from_secs(seconds));
        show(0, &snapshot("being set up", &[]));
        show(1, &snapshot("being set up", &[]));
        show(
            2,
            &snapshot("in progress", &[("demo-a", "creating the server"), ("demo-b", "creating the server")]),
        );
        show(3, &snapshot("in progress", &[("demo-a", "booting"), ("demo-b", "creating the server")]));
        show(4, &snapshot("ready", &[("demo-a", "ready")]));
        show(5, &snapshot("ready", &[("demo-a", "ready")]));
        assert_eq!(
            *kept.lock(),
            "    0s  demo: being set up\n    \
                 2s  demo-a: creating the server\n    \
                 2s  demo-b: creating the server\n    \
                 2s  demo: in progress\n    \
                 3s  demo-a: booting\n    \
                 4s  demo-a: ready\n    \
                 4s  demo-b: gone\n    \
                 4s  demo: ready\n"
        );
    }
}
