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
}

/// Between two columns.
const GAP: &str = "   ";

impl Table {
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Table {
        Table { rows: vec![header.map(Cell::from).to_vec()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The table, each line ending in a line break. The last column is never padded, so that a long message
    /// there wraps only itself.
    pub(crate) fn render(&self, indent: &str) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let text =
            |row: &[Cell], column: usize| row.get(column).map(|cell| shown(&cell.text)).unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.rows.iter().map(|row| width(&text(row, column))).max().unwrap_or_default())
            .collect();
        let mut out = String::new();
        for row in &self.rows {
            out.push_str(indent);
            let last = row.len().saturating_sub(1);
            for (column, cell) in row.iter().enumerate() {
                let text = text(row, column);
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
