//! The emulated terminal, and what of it a page has not been told yet.

use serde::{Serialize, Serializer, ser::SerializeSeq};
use vt100::{Cell, Color, Parser};

use crate::{exec::bounded, keys::Modes, message::Told};

/// Rows that are kept above the screen.
const KEPT: usize = 1000;

/// Cells of one look side by side: as a list, without what is usual at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) text: String,
    look: Look,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Look {
    foreground: Color,
    background: Color,
    /// Bold 1, dim 2, italic 4, underlined 8, inverse 16.
    flags: u8,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let flags = [cell.bold(), cell.dim(), cell.italic(), cell.underline(), cell.inverse()];
        let flags = flags.iter().enumerate().map(|(place, on)| u8::from(*on) << place).sum();
        Self { foreground: cell.fgcolor(), background: cell.bgcolor(), flags }
    }
}

/// A number of the palette, a colour as pages write it, or nothing for the usual one.
struct Shown(Color);

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Color::Default => serializer.serialize_none(),
            Color::Idx(number) => serializer.serialize_u8(number),
            Color::Rgb(red, green, blue) => {
                serializer.serialize_str(&format!("#{red:02x}{green:02x}{blue:02x}"))
            }
        }
    }
}

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Look { foreground, background, flags } = self.look;
        let length = match self.look {
            look if look == Look::default() => 1,
            _ => 4,
        };
        let mut list = serializer.serialize_seq(Some(length))?;
        list.serialize_element(&self.text)?;
        if length > 1 {
            list.serialize_element(&Shown(foreground))?;
            list.serialize_element(&Shown(background))?;
            list.serialize_element(&flags)?;
        }
        list.end()
    }
}

/// Column and row; nothing where the program hides it or it is not on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Cursor(pub(crate) Option<(u16, u16)>);

/// A terminal with a page that looks at it.
pub(crate) struct Screen {
    parser: Parser,
    /// As the page was told last.
    rows: Vec<Vec<Run>>,
    cursor: Option<Cursor>,
    size: Option<(u16, u16)>,
    back: usize,
}

impl Screen {
    pub(crate) fn new(columns: u16, rows: u16) -> Self {
        let (columns, rows) = bounded(columns, rows);
        Self { parser: Parser::new(rows, columns, KEPT), rows: Vec::new(), cursor: None, size: None, back: 0 }
    }

    /// What the command wrote.
    pub(crate) fn write(&mut self, output: &[u8]) {
        self.parser.process(output);
    }

    /// The size that was taken.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) -> (u16, u16) {
        let (columns, rows) = bounded(columns, rows);
        self.parser.screen_mut().set_size(rows, columns);
        (columns, rows)
    }

    /// Looks at rows above the newest, as many as there are.
    pub(crate) fn look_back(&mut self, rows: usize) {
        self.parser.screen_mut().set_scrollback(rows.min(KEPT));
    }

    pub(crate) fn modes(&self) -> Modes {
        let screen = self.parser.screen();
        Modes { application_cursor: screen.application_cursor(), bracketed_paste: screen.bracketed_paste() }
    }

    /// What a page is told that knows nothing yet.
    #[cfg(test)]
    pub(crate) fn again(&mut self) -> Told {
        (self.rows, self.cursor, self.size) = (Vec::new(), None, None);
        self.changes()
    }

    /// What has changed since the last time.
    pub(crate) fn changes(&mut self) -> Told {
        let screen = self.parser.screen();
        let (height, width) = screen.size();
        let mut told = Told::default();
        if self.size != Some((width, height)) {
            self.size = Some((width, height));
            told.size = self.size;
            // A page draws all rows anew for another size.
            self.rows.clear();
        }
        self.rows.resize(usize::from(height), Vec::new());
        for row in 0..height {
            let now = runs(screen, row, width);
            let known = &mut self.rows[usize::from(row)];
            if told.size.is_some() && now.is_empty() {
                continue;
            }
            if *known != now {
                known.clone_from(&now);
                told.rows.push((row, now));
            }
        }
        let back = screen.scrollback();
        if back != self.back {
            self.back = back;
            told.back = Some(back);
        }
        let (row, column) = screen.cursor_position();
        let hidden = screen.hide_cursor() || back > 0;
        let cursor = Cursor((!hidden).then_some((column.min(width.saturating_sub(1)), row)));
        if self.cursor != Some(cursor) {
            self.cursor = Some(cursor);
            told.cursor = self.cursor;
        }
        told
    }
}

/// A row without the empty cells at its end.
fn runs(screen: &vt100::Screen, row: u16, width: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for column in 0..width {
        let Some(cell) = screen.cell(row, column) else { break };
        // The second half of a wide letter has nothing of its own.
        if cell.is_wide_continuation() {
            continue;
        }
        let text = if cell.has_contents() { cell.contents() } else { " " };
        let look = Look::of(cell);
        match runs.last_mut().filter(|run| run.look == look) {
            Some(run) => run.text.push_str(text),
            None => runs.push(Run { text: text.to_owned(), look }),
        }
    }
    if let Some(last) = runs.last_mut().filter(|last| last.look == Look::default()) {
        last.text.truncate(last.text.trim_end_matches(' ').len());
        if last.text.is_empty() {
            runs.pop();
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(screen: &mut Screen) -> Value {
        serde_json::to_value(screen.changes()).unwrap()
    }

    #[test]
    fn a_page_is_told_what_changed() {
        let mut screen = Screen::new(10, 3);
        assert_eq!(told(&mut screen), json!({"size": [10, 3], "cursor": [0, 0]}));
        assert!(screen.changes().is_empty());
        screen.write(b"a\x1b[1;31mred\x1b[0m b\r\n\x1b[38;2;1;2;3;4mx");
        assert_eq!(
            told(&mut screen),
            json!({
                "rows": [[0, [["a"], ["red", 1, null, 1], [" b"]]], [1, [["x", "#010203", null, 8]]]],
                "cursor": [1, 1],
            })
        );
        screen.write(b"\x1b[?25l");
        assert_eq!(told(&mut screen), json!({"cursor": null}));
        screen.write(b"\x1b[0m\x1b[1;1H\x1b[2K");
        assert_eq!(told(&mut screen), json!({"rows": [[0, []]]}));
    }

    #[test]
    fn letters_of_all_widths_are_kept() {
        let mut screen = Screen::new(10, 2);
        screen.write("e\u{301} 漢字 ✓".as_bytes());
        assert_eq!(told(&mut screen)["rows"], json!([[0, [["e\u{301} 漢字 ✓"]]]]));
    }

    #[test]
    fn rows_that_have_gone_can_be_looked_at() {
        let mut screen = Screen::new(10, 2);
        screen.write(b"one\r\ntwo\r\nthree\r\nfour");
        assert_eq!(told(&mut screen)["rows"], json!([[0, [["three"]]], [1, [["four"]]]]));
        screen.look_back(1);
        let back = told(&mut screen);
        assert_eq!((&back["rows"], &back["back"]), (&json!([[0, [["two"]]], [1, [["three"]]]]), &json!(1)));
        assert_eq!(back["cursor"], json!(null));
        screen.look_back(1_000_000);
        assert_eq!(told(&mut screen)["back"], 2, "there are two and no more");
        screen.look_back(0);
        assert_eq!(told(&mut screen)["back"], 0);
    }

    #[test]
    fn another_size_is_drawn_anew() {
        let mut screen = Screen::new(10, 2);
        screen.write(b"one\r\ntwo");
        screen.changes();
        assert_eq!(screen.resize(20, 3), (20, 3));
        let told = told(&mut screen);
        assert_eq!(told["size"], json!([20, 3]));
        assert_eq!(told["rows"], json!([[0, [["one"]]], [1, [["two"]]]]));
        assert_eq!(screen.resize(0, 60_000), (2, 150));
    }

    #[test]
    fn programs_say_how_they_want_keys() {
        let mut screen = Screen::new(10, 2);
        assert_eq!(screen.modes(), Modes::default());
        screen.write(b"\x1b[?1h\x1b[?2004h");
        assert_eq!(screen.modes(), Modes { application_cursor: true, bracketed_paste: true });
    }
}
