//! Command lines of unit files, and the words of other values.

/// One command of a service.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExecLine {
    words: Vec<Word>,
    /// `-`: a failure does not count.
    pub(crate) may_fail: bool,
    /// `:`: variables are left alone.
    verbatim: bool,
    /// `@`: the second word is the name the program sees.
    renamed: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Word {
    text: String,
    /// Quoted words do not fall apart when a variable in them has spaces.
    quoted: bool,
}

/// A command ready to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) program: String,
    pub(crate) name: String,
    pub(crate) args: Vec<String>,
}

impl ExecLine {
    /// Reads a value: one command, or several with a lone `;` between them.
    pub(crate) fn parse_all(text: &str, specify: impl Fn(&str) -> String) -> Vec<Self> {
        let mut lines = Vec::new();
        let mut current = Vec::new();
        for word in split(text) {
            if !word.quoted && word.text == ";" {
                lines.push(std::mem::take(&mut current));
            } else {
                current.push(word);
            }
        }
        lines.push(current);
        let build = |mut words: Vec<Word>| {
            let first = words.first_mut()?;
            let (mut may_fail, mut verbatim, mut renamed) = (false, false, false);
            while let Some(letter) = first.text.chars().next() {
                match letter {
                    '-' => may_fail = true,
                    ':' => verbatim = true,
                    '@' => renamed = true,
                    '+' | '!' | '|' => {}
                    _ => break,
                }
                first.text.remove(0);
            }
            if first.text.is_empty() {
                return None;
            }
            for word in &mut words {
                word.text = specify(&word.text);
            }
            Some(Self { words, may_fail, verbatim, renamed })
        };
        lines.into_iter().filter_map(build).collect()
    }

    /// Fills variables in. `None` if nothing is left to run.
    pub(crate) fn ready(&self, variable: impl Fn(&str) -> Option<String>) -> Option<Ready> {
        let mut out: Vec<String> = Vec::new();
        for word in &self.words {
            if self.verbatim || !word.text.contains('$') {
                out.push(word.text.clone());
                continue;
            }
            let whole = word.text.strip_prefix('$').filter(|name| !word.quoted && is_name(name));
            match whole {
                // `$NAME` alone is as many words as it has.
                Some(name) => out.extend(words(&variable(name).unwrap_or_default())),
                None => out.push(expand(&word.text, &variable)),
            }
        }
        let mut out = out.into_iter();
        let program = out.next()?;
        let name = if self.renamed { out.next()? } else { program.clone() };
        Some(Ready { program, name, args: out.collect() })
    }

    /// The command as it was written, for people.
    pub(crate) fn text(&self) -> String {
        self.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
    }
}

fn is_name(text: &str) -> bool {
    let mut letters = text.bytes();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}

/// `${NAME}` anywhere, `$$` for a dollar.
fn expand(text: &str, variable: &impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'))
            && is_name(name)
        {
            out.push_str(&variable(name).unwrap_or_default());
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

/// The words of a value, without quotes.
pub(crate) fn words(text: &str) -> Vec<String> {
    split(text).into_iter().map(|word| word.text).collect()
}

fn split(text: &str) -> Vec<Word> {
    let mut out = Vec::new();
    let mut current: Option<Word> = None;
    let mut quote = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '\\' {
            let word = current.get_or_insert_with(|| Word { text: String::new(), quoted: false });
            escape(&mut letters, &mut word.text);
            continue;
        }
        match quote {
            Some(open) if letter == open => quote = None,
            None if letter == '"' || letter == '\'' => {
                quote = Some(letter);
                current.get_or_insert_with(|| Word { text: String::new(), quoted: true }).quoted = true;
            }
            None if letter.is_whitespace() => out.extend(current.take()),
            _ => {
                let word = current.get_or_insert_with(|| Word { text: String::new(), quoted: false });
                word.text.push(letter);
            }
        }
    }
    out.extend(current);
    out
}

fn escape(letters: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    let Some(letter) = letters.next() else {
        out.push('\\');
        return;
    };
    match letter {
        'n' => out.push('\n'),
        't' => out.push('\t'),
        'r' => out.push('\r'),
        's' => out.push(' '),
        'x' => {
            let mut code = 0;
            for _ in 0..2 {
                let Some(digit) = letters.peek().and_then(|digit| digit.to_digit(16)) else { break };
                code = code * 16 + digit;
                letters.next();
            }
            out.extend(char::from_u32(code).filter(|letter| *letter != '\0'));
        }
        '\\' | '"' | '\'' | ' ' | ';' => out.push(letter),
        other => {
            out.push('\\');
            out.push(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let variable = |name: &str| match name {
            "ARGS" => Some("--a 'b c'".to_owned()),
            "ONE" => Some("x y".to_owned()),
            _ => None,
        };
        let lines = ExecLine::parse_all(line, |word| word.replace("%n", "unit"));
        let ready = lines[0].ready(variable).unwrap();
        let all: Vec<&str> = std::iter::once(&ready.program).chain(&ready.args).map(String::as_str).collect();
        assert_eq!(all, expected, "{line}");
    }

    #[test]
    fn command_lines_are_split_quoted_and_filled_in() {
        check("/bin/k3s server", &["/bin/k3s", "server"]);
        check(
            r#"/bin/sh -xc '! /bin/x is-enabled --quiet "a b" 2>/dev/null'"#,
            &["/bin/sh", "-xc", "! /bin/x is-enabled --quiet \"a b\" 2>/dev/null"],
        );
        check("-/sbin/modprobe overlay", &["/sbin/modprobe", "overlay"]);
        check(
            "/bin/x $ARGS ${ONE} \"$ARGS\" $$HOME %n",
            &["/bin/x", "--a", "b c", "x y", "$ARGS", "$HOME", "unit"],
        );
        check("/bin/x a${ONE}b ${NONE} $NONE", &["/bin/x", "ax yb", ""]);
        check(":/bin/x $ARGS", &["/bin/x", "$ARGS"]);
        check(r"/bin/x a\x20b \$x", &["/bin/x", "a b", "\\$x"]);
    }

    #[test]
    fn several_commands_stand_in_one_line() {
        let lines = ExecLine::parse_all("/bin/a ; -/bin/b c", str::to_owned);
        assert_eq!(lines.len(), 2);
        assert!(!lines[0].may_fail && lines[1].may_fail);
        assert_eq!(lines[1].text(), "/bin/b c");
        assert!(ExecLine::parse_all("-", str::to_owned).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_split(text in "\\PC{0,60}") {
            for line in ExecLine::parse_all(&text, str::to_owned) {
                let _ = line.ready(|_| Some("a b".into()));
            }
        }
    }
}
