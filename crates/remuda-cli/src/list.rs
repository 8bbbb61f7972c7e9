//! Lists of objects: printed once, or watched.

use std::{collections::BTreeMap, future::Future};

use serde_json::Value;

use crate::{
    failure::{Code, Failure},
    follow,
    object::Object,
    output::{self, Format, Out},
    session::Session,
    table::{Cell, Table, Tone},
};

/// Changes of its own, with time alone.
const AGE: &str = "AGE";
const STATE: &str = "STATE";

/// One object, and what a table says about it.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) object: Object,
    /// Nothing unless a table was asked for.
    pub(crate) cells: Vec<Cell>,
}

/// Objects of a kind.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) header: Vec<&'static str>,
    pub(crate) items: Vec<Item>,
    /// They are of several namespaces.
    pub(crate) qualified: bool,
    /// What is said instead of an empty table.
    pub(crate) empty: String,
    /// What is said beside it.
    pub(crate) remark: Option<&'static str>,
}

impl Listing {
    fn name(&self, object: &Object) -> String {
        match self.qualified {
            true => format!("{}/{}", object.namespace(), object.name()),
            false => object.name().to_owned(),
        }
    }

    fn table<'a>(&self, rows: impl IntoIterator<Item = &'a Vec<Cell>>) -> Table {
        let mut table = Table::new(self.header.iter().copied());
        rows.into_iter().for_each(|cells| table.row(cells.clone()));
        table
    }
}

pub(crate) fn print(out: &Out, listing: Listing, format: Format) -> Result<(), Failure> {
    if let Some(remark) = listing.remark {
        out.note(remark);
    }
    match format {
        Format::Name => listing.items.iter().for_each(|item| out.line(&listing.name(&item.object))),
        Format::Json | Format::Yaml => {
            let items = listing.items.into_iter().map(|item| item.object.presentable().0).collect();
            return out.document(&output::list(items), format);
        }
        Format::Table | Format::Wide if listing.items.is_empty() => out.note(&listing.empty),
        Format::Table | Format::Wide => {
            out.table(&listing.table(listing.items.iter().map(|item| &item.cells)), format);
        }
    }
    Ok(())
}

/// Shows a list, and then what changes in it, until Ctrl-C. A server that does not answer for a while is waited for.
pub(crate) async fn watch<F>(session: &Session, format: Format, look: impl Fn() -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<Listing, Failure>>,
{
    let mut watched = Watched::new(session.out.clone(), format);
    let first = look().await?;
    if let Some(remark) = first.remark {
        session.out.note(remark);
    }
    watched.show(first)?;
    let mut silent = false;
    loop {
        follow::pause().await;
        match look().await {
            Ok(listing) => {
                watched.show(listing)?;
                silent = false;
            }
            Err(failure) if failure.code == Code::Unreachable => {
                if !silent {
                    watched.interrupt(&format!("{}; waiting for the server", failure.message));
                }
                silent = true;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// What has been shown of a list.
struct Watched {
    out: Out,
    format: Format,
    /// What was shown of each object.
    known: BTreeMap<String, Shown>,
    widths: Vec<usize>,
    /// Lines on the terminal that the next table takes the place of.
    drawn: usize,
    begun: bool,
    headed: bool,
}

struct Shown {
    /// What is compared.
    text: Vec<String>,
    cells: Vec<Cell>,
}

impl Watched {
    fn new(out: Out, format: Format) -> Watched {
        Watched {
            out,
            format,
            known: BTreeMap::new(),
            widths: Vec::new(),
            drawn: 0,
            begun: false,
            headed: false,
        }
    }

    /// Says something in between; what is on the screen stays there.
    fn interrupt(&mut self, text: &str) {
        self.drawn = 0;
        self.out.note(text);
    }

    fn show(&mut self, listing: Listing) -> Result<(), Failure> {
        let changed = self.changed(&listing);
        match (self.format, self.out.size()) {
            (Format::Name, _) => {
                let new = changed.iter().filter(|change| change.new);
                new.for_each(|change| self.out.line(&change.name));
                Ok(())
            }
            (Format::Json | Format::Yaml, _) => {
                let mut present = changed.into_iter().filter_map(|change| change.object);
                present.try_for_each(|object| self.document(&object))
            }
            (Format::Table, Some(size)) if listing.items.len() + 1 < size.lines => {
                self.draw(&listing, size.columns);
                Ok(())
            }
            _ => {
                self.append(&listing, &changed);
                Ok(())
            }
        }
    }

    /// Objects that are new, differ from what was shown, or are gone, and remembers them.
    fn changed(&mut self, listing: &Listing) -> Vec<Change> {
        let mut before = std::mem::take(&mut self.known);
        let mut changed = Vec::new();
        for item in &listing.items {
            let name = format!("{}/{}", item.object.namespace(), item.object.name());
            let shown = Shown { text: compared(listing, item, self.format), cells: item.cells.clone() };
            let old = before.remove(&name);
            if old.as_ref().is_none_or(|old| old.text != shown.text) {
                changed.push(Change {
                    name: listing.name(&item.object),
                    new: old.is_none(),
                    object: Some(item.object.clone().presentable().0),
                    cells: item.cells.clone(),
                });
            }
            self.known.insert(name, shown);
        }
        changed.extend(before.into_iter().map(|(name, old)| gone(listing, name, old.cells)));
        changed
    }

    fn draw(&mut self, listing: &Listing, columns: usize) {
        let text = match listing.items.is_empty() {
            true => format!("{}\n", listing.empty),
            false => listing.table(listing.items.iter().map(|item| &item.cells)).fitted(columns),
        };
        // Up to where the last one began, and away with it.
        let back = if self.drawn > 0 { format!("\x1b[{}A\x1b[J", self.drawn) } else { String::new() };
        self.out.text(&format!("{back}{text}"));
        self.drawn = text.lines().count();
    }

    /// Lines for what changed, below those that are there.
    fn append(&mut self, listing: &Listing, changed: &[Change]) {
        let first = !std::mem::replace(&mut self.begun, true);
        if changed.is_empty() {
            if first {
                self.out.note(&listing.empty);
            }
            return;
        }
        let table = listing.table(changed.iter().map(|change| &change.cells));
        let table = table.continued(std::mem::take(&mut self.widths));
        self.widths = table.widths();
        let text = table.render("");
        let rows = text.split_once('\n').map_or("", |(_, rows)| rows);
        let headed = std::mem::replace(&mut self.headed, true);
        self.out.text(if headed { rows } else { &text });
    }

    fn document(&self, object: &Value) -> Result<(), Failure> {
        match self.format {
            // One on each line, as programs read what has no end.
            Format::Json => self.out.line(&object.to_string()),
            _ => self.out.text(&format!("---\n{}", output::yaml(object)?)),
        }
        Ok(())
    }
}

/// What happened to an object.
struct Change {
    name: String,
    new: bool,
    /// Nothing if it is gone.
    object: Option<Value>,
    cells: Vec<Cell>,
}

fn gone(listing: &Listing, name: String, mut cells: Vec<Cell>) -> Change {
    let state = listing.header.iter().position(|title| *title == STATE);
    if let Some(state) = state.and_then(|column| cells.get_mut(column)) {
        *state = Cell::toned("Gone", Tone::Plain);
    }
    Change { name, new: false, object: None, cells }
}

fn compared(listing: &Listing, item: &Item, format: Format) -> Vec<String> {
    match format {
        Format::Table | Format::Wide => {
            let cells = listing.header.iter().zip(&item.cells).filter(|(title, _)| **title != AGE);
            cells.map(|(_, cell)| cell.text().to_owned()).collect()
        }
        _ => vec![item.object.text("/metadata/resourceVersion").to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    /// Objects as `name state age`.
    fn listing(objects: &[(&str, &str, &str)]) -> Listing {
        let item = |(name, state, age): &(&str, &str, &str)| Item {
            object: Object(
                json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": format!("{state}")}}),
            ),
            cells: vec![(*name).into(), (*age).into(), (*state).into()],
        };
        Listing {
            header: vec!["NAME", AGE, STATE],
            items: objects.iter().map(item).collect(),
            qualified: false,
            empty: "there are none".to_owned(),
            remark: None,
        }
    }

    fn told(format: Format, steps: &[&[(&str, &str, &str)]]) -> String {
        let said = Arc::new(Mutex::new(String::new()));
        let mut watched = Watched::new(Out::Kept(said.clone()), format);
        for step in steps {
            watched.show(listing(step)).unwrap();
        }
        said.lock().clone()
    }

    #[test]
    fn only_what_changed_is_told_and_age_is_no_change() {
        let steps: &[&[(&str, &str, &str)]] = &[
            &[("demo", "Creating", "1s")],
            &[("demo", "Creating", "2s")],
            &[("demo", "Ready", "3s"), ("edge", "Creating", "0s")],
            &[("edge", "Creating", "1s")],
            &[("edge", "Creating", "2s")],
        ];
        assert_eq!(
            told(Format::Table, steps),
            "NAME   AGE   STATE\ndemo   1s    Creating\ndemo   3s    Ready\nedge   0s    Creating\ndemo   3s    Gone\n"
        );
        assert_eq!(told(Format::Name, steps), "demo\nedge\n");
        assert_eq!(told(Format::Json, steps).lines().count(), 3);
    }

    #[test]
    fn an_empty_list_says_so_once_and_has_its_header_with_the_first_line() {
        let text =
            told(Format::Table, &[&[], &[], &[("demo", "Ready", "1s")], &[], &[("demo", "Ready", "2s")]]);
        assert_eq!(
            text,
            "there are none\nNAME   AGE   STATE\ndemo   1s    Ready\ndemo   1s    Gone\ndemo   2s    Ready\n"
        );
    }
}
