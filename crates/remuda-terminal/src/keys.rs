//! Keys of a page as the bytes programs expect of a terminal (xterm).

/// A key with a name, and what was held with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Held {
    pub(crate) shift: bool,
    pub(crate) alt: bool,
    pub(crate) control: bool,
}

impl Held {
    /// As xterm counts them.
    fn code(self) -> u8 {
        1 + u8::from(self.shift) + 2 * u8::from(self.alt) + 4 * u8::from(self.control)
    }
}

/// How the program wants keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Modes {
    /// Arrows as SS3 sequences.
    pub(crate) application_cursor: bool,
    pub(crate) bracketed_paste: bool,
}

/// The bytes of a key; nothing for one that is none of a terminal.
pub(crate) fn bytes(key: &str, held: Held, modes: Modes) -> Option<Vec<u8>> {
    let mut letters = key.chars();
    if let (Some(letter), None) = (letters.next(), letters.next()) {
        return Some(letter_bytes(letter, held));
    }
    let plain: &[u8] = match key {
        "Enter" => b"\r",
        "Escape" => b"\x1b",
        "Backspace" if held.control => b"\x08",
        "Backspace" => b"\x7f",
        "Tab" if held.shift => return Some(b"\x1b[Z".to_vec()),
        "Tab" => b"\t",
        _ => return sequence(key, held, modes),
    };
    Some(if held.alt { [b"\x1b", plain].concat() } else { plain.to_vec() })
}

/// A letter, by itself or with Control or Alt.
fn letter_bytes(letter: char, held: Held) -> Vec<u8> {
    let mut out = Vec::new();
    if held.alt {
        out.push(0x1b);
    }
    let control = match letter.to_ascii_uppercase() {
        upper @ '@'..='_' => Some(upper as u8 & 0x1f),
        ' ' | '2' => Some(0),
        '/' => Some(0x1f),
        '?' => Some(0x7f),
        _ => None,
    };
    match control.filter(|_| held.control) {
        Some(byte) => out.push(byte),
        None => out.extend(letter.to_string().as_bytes()),
    }
    out
}

/// Arrows, keys of the block above them, and function keys.
fn sequence(key: &str, held: Held, modes: Modes) -> Option<Vec<u8>> {
    let code = held.code();
    let ending = |last: char| match (code, modes.application_cursor) {
        (1, true) => format!("\x1bO{last}"),
        (1, false) => format!("\x1b[{last}"),
        (code, _) => format!("\x1b[1;{code}{last}"),
    };
    let numbered = |number: u8| match code {
        1 => format!("\x1b[{number}~"),
        code => format!("\x1b[{number};{code}~"),
    };
    let function = |last: char| match code {
        1 => format!("\x1bO{last}"),
        code => format!("\x1b[1;{code}{last}"),
    };
    let text = match key {
        "ArrowUp" => ending('A'),
        "ArrowDown" => ending('B'),
        "ArrowRight" => ending('C'),
        "ArrowLeft" => ending('D'),
        "Home" => ending('H'),
        "End" => ending('F'),
        "Insert" => numbered(2),
        "Delete" => numbered(3),
        "PageUp" => numbered(5),
        "PageDown" => numbered(6),
        "F1" => function('P'),
        "F2" => function('Q'),
        "F3" => function('R'),
        "F4" => function('S'),
        "F5" => numbered(15),
        "F6" => numbered(17),
        "F7" => numbered(18),
        "F8" => numbered(19),
        "F9" => numbered(20),
        "F10" => numbered(21),
        "F11" => numbered(23),
        "F12" => numbered(24),
        _ => return None,
    };
    Some(text.into_bytes())
}

/// A text that was pasted. Lines end as the key for it does; what would end the paste early is left out.
pub(crate) fn pasted(text: &str, modes: Modes) -> Vec<u8> {
    let text = text.replace("\r\n", "\r").replace('\n', "\r");
    if !modes.bracketed_paste {
        return text.into_bytes();
    }
    let inner: String = text.chars().filter(|letter| *letter != '\u{1b}').collect();
    format!("\x1b[200~{inner}\x1b[201~").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, held: &str, modes: Modes, expected: &str) {
        let held = Held { shift: held.contains('s'), alt: held.contains('a'), control: held.contains('c') };
        let found = bytes(key, held, modes).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(found.as_deref(), Some(expected), "{key} {held:?}");
    }

    #[test]
    fn keys_are_what_xterm_sends() {
        let usual = Modes::default();
        let program = Modes { application_cursor: true, ..usual };
        check("a", "", usual, "a");
        check("ü", "", usual, "ü");
        check("c", "c", usual, "\x03");
        check("[", "c", usual, "\x1b");
        check(" ", "c", usual, "\0");
        check("b", "a", usual, "\x1bb");
        check("Enter", "", usual, "\r");
        check("Backspace", "", usual, "\x7f");
        check("Tab", "s", usual, "\x1b[Z");
        check("ArrowUp", "", usual, "\x1b[A");
        check("ArrowUp", "", program, "\x1bOA");
        check("ArrowLeft", "c", program, "\x1b[1;5D");
        check("Delete", "", usual, "\x1b[3~");
        check("PageUp", "s", usual, "\x1b[5;2~");
        check("F1", "", usual, "\x1bOP");
        check("F12", "a", usual, "\x1b[24;3~");
        assert_eq!(bytes("MediaPlay", Held::default(), usual), None);
        assert_eq!(bytes("", Held::default(), usual), None);
    }

    #[test]
    fn a_paste_is_one_and_cannot_end_itself() {
        assert_eq!(pasted("a\r\nb\nc", Modes::default()), b"a\rb\rc");
        let modes = Modes { bracketed_paste: true, ..Modes::default() };
        assert_eq!(pasted("x\x1b[201~; rm", modes), b"\x1b[200~x[201~; rm\x1b[201~");
    }
}
