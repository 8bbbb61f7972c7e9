//! Whether what a command prints has the shape that a guide shows.
//!
//! Numbers stand for numbers, ages for ages, blanks for blanks, the random end of a name for any other, `…` for anything; a line
//! that is only `…` stands for any lines. Lines of a log are not shown.

/// Letters and digits of names that servers make up: those without vowels.
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";
const RANDOM_LENGTH: usize = 5;

/// The first line that is shown and not printed, if there is one.
pub(crate) fn missing<'a>(shown: &'a [String], printed: &str) -> Option<&'a str> {
    let mut printed = printed.lines().filter(|line| !is_log(line));
    // What is shown first may be preceded by what is not shown: logs, and news of progress.
    let mut anywhere = true;
    for line in shown {
        if matches!(line.trim(), "…" | "...") {
            anywhere = true;
            continue;
        }
        let found = if anywhere {
            printed.any(|printed| alike(line, printed))
        } else {
            printed.next().is_some_and(|printed| alike(line, printed))
        };
        if !found {
            return Some(line);
        }
        anywhere = false;
    }
    None
}

/// A line of a log begins with the time.
fn is_log(line: &str) -> bool {
    let date: Vec<char> = "0000-00-00T".chars().collect();
    let begin: Vec<char> = line.chars().take(date.len()).collect();
    begin.len() == date.len()
        && date.iter().zip(&begin).all(|(form, letter)| match form {
            '0' => letter.is_ascii_digit(),
            form => form == letter,
        })
}

fn alike(shown: &str, printed: &str) -> bool {
    let printed: Vec<char> = printed.trim().chars().collect();
    fits(&shown.trim().chars().collect::<Vec<_>>(), &printed)
}

fn fits(shown: &[char], printed: &[char]) -> bool {
    let run = |text: &[char], is: fn(&char) -> bool| text.iter().take_while(|letter| is(letter)).count();
    match (shown, printed) {
        ([], []) => true,
        (['…', rest @ ..], _) => (0..=printed.len()).any(|from| fits(rest, &printed[from..])),
        ([first, ..], [second, ..]) if first.is_whitespace() && second.is_whitespace() => {
            let is = |letter: &char| letter.is_whitespace();
            fits(&shown[run(shown, is)..], &printed[run(printed, is)..])
        }
        (['-', one @ ..], ['-', other @ ..]) if random(one) && random(other) => {
            fits(&one[RANDOM_LENGTH..], &other[RANDOM_LENGTH..])
        }
        _ if age(shown) > 0 && age(printed) > 0 => fits(&shown[age(shown)..], &printed[age(printed)..]),
        ([first, ..], [second, ..]) if first.is_ascii_digit() && second.is_ascii_digit() => {
            let is = char::is_ascii_digit;
            fits(&shown[run(shown, is)..], &printed[run(printed, is)..])
        }
        ([first, one @ ..], [second, other @ ..]) => first == second && fits(one, other),
        _ => false,
    }
}

/// How many letters the age is that it begins with, such as `2m5s`.
fn age(text: &[char]) -> usize {
    let mut length = 0;
    loop {
        let rest = &text[length..];
        let digits = rest.iter().take_while(|letter| letter.is_ascii_digit()).count();
        match rest.get(digits) {
            Some('d' | 'h' | 'm' | 's') if digits > 0 => length += digits + 1,
            Some(letter) if letter.is_alphanumeric() => return 0,
            _ if digits > 0 => return 0,
            _ => return length,
        }
    }
}

/// It begins with the random end of a name.
fn random(text: &[char]) -> bool {
    let word = text.iter().take_while(|letter| letter.is_ascii_alphanumeric());
    word.clone().count() == RANDOM_LENGTH && word.clone().all(|letter| RANDOM.contains(*letter))
}

#[test]
fn shapes_are_compared_and_contents_are_not() {
    assert!(alike("   13s  demo: ready", "    4s demo: ready"));
    assert!(alike("demo-servers-9zsmn-zwst5: booting", "demo-servers-bcdfg-24567: booting"));
    assert!(alike("server is ready at …", "server is ready at https://127.0.0.1:1"));
    assert!(alike("Ready  2m5s  v1.35.1", "Ready  13s  v1.34.0"));
    assert!(!alike("Ready  2m5s", "Ready  2"));
    assert!(!alike("demo: ready", "demo: broken"));
    assert!(!alike("demo-other: ready", "demo-bcdfg: ready"));
    assert!(!alike("demo", "demo is ready"));

    let shown = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert_eq!(missing(&shown(&["a", "b"]), "a\n2026-01-31T12:00:00Z  INFO x\nb\n"), None);
    assert_eq!(missing(&shown(&["a 1", "...", "c"]), "log\na 22\nb\nb\nc\n"), None);
    assert_eq!(missing(&shown(&["a", "c"]), "a\nb\nc\n"), Some("c"));
    assert_eq!(missing(&shown(&["a", "…", "b"]), "a\nc\n"), Some("b"));
}
