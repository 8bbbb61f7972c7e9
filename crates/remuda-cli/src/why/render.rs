//! The answer as people read it.

use std::collections::BTreeMap;

use jiff::{Timestamp, tz::TimeZone};

use super::{Cause, Finding, State};
use crate::{age, denied::Denied, output::paint, table::shown};

impl Finding {
    /// Several lines, each ending in a line break. Times are in the given zone.
    pub fn render(&self, now: Timestamp, zone: &TimeZone) -> String {
        let state = match (self.state, self.deleting) {
            (State::Ready, _) => paint::good("ready"),
            (State::Waiting, false) if self.cause == Cause::Hibernated => "hibernated".to_owned(),
            (State::Waiting, false) => paint::busy("not ready yet"),
            (State::Waiting, true) => paint::busy("being deleted"),
            (State::Blocked, false) => paint::bad("blocked"),
            (State::Blocked, true) => paint::bad("being deleted, and blocked"),
        };
        let mut out = format!("{} is {state}\n", paint::strong(&shown(&self.subject)));
        if self.state != State::Ready {
            field(&mut out, "Cause", &self.summary);
            if !self.waiting_for.is_empty() {
                field(&mut out, "Waits for", &self.waiting_for);
            }
        }
        if let Some(since) = self.since {
            let clock = since.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z");
            field(&mut out, "Since", &format!("{clock} ({})", age::ago(Some(since), now)));
        }
        if self.state != State::Ready
            && let Some(object) = &self.object
        {
            field(&mut out, "Look at", object);
        }
        if !self.also.is_empty() {
            let some: Vec<_> = self.also.iter().take(5).map(String::as_str).collect();
            let more = match self.also.len() - some.len() {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            field(&mut out, "Also", &format!("{}{more}", some.join(", ")));
        }
        if !self.not_allowed.is_empty() {
            field(&mut out, "Not seen", &missing(&self.not_allowed));
        }
        if !self.evidence.is_empty() {
            out.push_str(&format!("\n{}\n", paint::strong("Evidence")));
            for exhibit in &self.evidence {
                out.push_str(&format!("  {}:\n", shown(&exhibit.source)));
                for line in exhibit.text.lines() {
                    out.push_str(&format!("    {}\n", shown(line)));
                }
            }
        }
        if !self.next.is_empty() {
            out.push_str(&format!("\n{}\n", paint::strong("Next")));
            for step in &self.next {
                out.push_str(&format!("  - {step}\n"));
            }
        }
        out
    }
}

/// Rights that are missing, those of one verb in one namespace together.
fn missing(rights: &[Denied]) -> String {
    let mut together: BTreeMap<(&str, Option<&str>), Vec<String>> = BTreeMap::new();
    for Denied { verb, resource, namespace, name } in rights {
        let name = name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        together.entry((verb, namespace.as_deref())).or_default().push(format!("{resource}{name}"));
    }
    let told = together.into_iter().map(|((verb, namespace), resources)| {
        let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
        format!("you may not {verb} {}{place}", resources.join(", "))
    });
    told.collect::<Vec<_>>().join("; ")
}

fn field(out: &mut String, name: &str, text: &str) {
    out.push_str(&format!("  {:<10} {}\n", name, shown(text)));
}
