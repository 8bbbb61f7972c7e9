//! Tables for people: aligned columns, colours that do not count as width.

use crate::output::paint;

/// What a cell says, beside its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Busy,
    Bad,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::toned(text, Tone::Plain)
    }
}

/// Rows of cells under a header.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
    least: Vec<usize>,
}

/// Between two columns.
const GAP: &str = "   ";

impl Table {
    pub(crate) fn new<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
        Table { rows: vec![header.into_iter().map(Cell::from).collect()], least: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The table, each line ending in a line break. The last column is never padded, so that a long message
    /// there wraps only itself.
    pub(crate) fn render(&self, indent: &str) -> String {
        self.draw(indent, &self.widths())
    }

    /// As [`Table::render`], with lines no longer than `columns`: what is too long ends in an ellipsis.
    pub(crate) fn fitted(&self, columns: usize) -> String {
        self.draw("", &fit(self.widths(), columns))
    }

    /// How wide the columns are; no narrower than in an earlier table that is continued.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let least = self.least.get(column).copied().unwrap_or_default();
            cells.map(|cell| width(&shown(&cell.text))).max().unwrap_or_default().max(least)
        };
        (0..columns).map(widest).collect()
    }

    /// Lines that continue a table which had columns of these widths.
    pub(crate) fn continued(mut self, least: Vec<usize>) -> Table {
        self.least = least;
        self
    }

    fn draw(&self, indent: &str, widths: &[usize]) -> String {
        let mut out = String::new();
        for row in &self.rows {
            out.push_str(indent);
            let last = row.len().saturating_sub(1);
            for (column, cell) in row.iter().enumerate() {
                let text = cut(shown(&cell.text), widths[column]);
                let padding = widths[column] - width(&text);
                out.push_str(&match cell.tone {
                    Tone::Plain => text,
                    Tone::Good => paint::good(&text),
                    Tone::Busy => paint::busy(&text),
                    Tone::Bad => paint::bad(&text),
                });
                if column < last {
                    out.push_str(&" ".repeat(padding));
                    out.push_str(GAP);
                }
            }
            out.push('\n');
        }
        out
    }
}

/// What is left of a column that has to give room to others.
const NARROW: usize = 12;

/// Narrows columns until a line fits: the last one, which has the longest text, then the widest of the others. The
/// first is the name, which commands need as it is.
fn fit(mut widths: Vec<usize>, columns: usize) -> Vec<usize> {
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    let Some(last) = widths.len().checked_sub(1) else { return widths };
    loop {
        let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(columns);
        let can_give = |column: &usize| widths[*column] > NARROW;
        let widest = (1..last).filter(can_give).max_by_key(|column| widths[*column]);
        let giving = Some(last).filter(|column| last > 0 && can_give(column)).or(widest);
        match giving {
            Some(column) if excess > 0 => {
                let spare = widths[column] - NARROW;
                // Of the others one letter at a time, so that they end up alike.
                widths[column] -= if column == last { spare.min(excess) } else { 1 };
            }
            _ => return widths,
        }
    }
}

fn cut(text: String, columns: usize) -> String {
    if width(&text) <= columns {
        return text;
    }
    let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
    format!("{}\u{2026}", kept.trim_end())
}

/// A cell is one line, and nothing in it moves the cursor or changes colours.
pub(crate) fn shown(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() {
        return "-".to_owned();
    }
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Names of things are ASCII; for anything else characters are near enough.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["NAME", "READY", "MESSAGE"]);
        table.row(vec!["demo".into(), "3/3".into(), "".into()]);
        table.row(vec!["a-longer-name".into(), "10/12".into(), "two\nlines".into()]);
        assert_eq!(
            table.render(""),
            "NAME            READY   MESSAGE\n\
             demo            3/3     -\n\
             a-longer-name   10/12   two lines\n"
        );
    }

    #[test]
    fn a_table_fits_the_terminal_and_names_stay_whole() {
        let mut table = Table::new(["NAME", "STATE", "PROVIDER", "MESSAGE"]);
        let long = "waiting for something that takes a lot of words to tell";
        table.row(vec!["a-cluster-with-a-long-name".into(), "Creating".into(), "local".into(), long.into()]);
        assert_eq!(
            table.fitted(80),
            "NAME                         STATE      PROVIDER   MESSAGE\n\
             a-cluster-with-a-long-name   Creating   local      waiting for something that t\u{2026}\n"
        );
        assert_eq!(table.fitted(300), table.render(""));
        for columns in [0, 10, 40, 66, 80, 100] {
            let text = table.fitted(columns);
            assert!(text.contains("a-cluster-with-a-long-name"), "{text}");
            let widest = text.lines().map(width).max().unwrap();
            assert!(widest <= columns.max(66), "{columns}: {widest}\n{text}");
        }
    }

    #[test]
    fn lines_that_continue_a_table_stay_in_its_columns() {
        let mut table = Table::new(["NAME", "STATE"]).continued(vec![9, 5]);
        table.row(vec!["demo".into(), "Ready".into()]);
        assert_eq!(table.render(""), "NAME        STATE\ndemo        Ready\n");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let mut table = Table::new(["A", "B"]);
        table.row(vec![Cell::toned("bad", Tone::Bad), "x".into()]);
        assert_eq!(table.render("  "), "  A     B\n  \x1b[31mbad\x1b[0m   x\n");
    }

    #[test]
    fn what_objects_say_cannot_steer_the_terminal() {
        assert_eq!(shown("a\x1b[2Jb\tc\r"), "a [2Jb c");
        assert_eq!(shown(" \n "), "-");
    }
}
