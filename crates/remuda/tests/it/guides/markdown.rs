//! The fenced blocks of a guide, and the marks before them.
//!
//! A mark is an HTML comment, which readers do not see:
//!
//! | mark | says |
//! |---|---|
//! | `not run: REASON` | the block is not run, and why |
//! | `before: COMMANDS` | what is run first, because a reader has it already |
//! | `where: TEXT is COMMAND` | TEXT is an example; the real one is what COMMAND prints |
//! | `input: LINE` | what is typed, one line per mark |
//! | `ends with: CODE` | the exit code of every command of the block, 0 if nothing is said |
//! | `file: NAME` | the block is a file of that name |

/// What a block is for.
#[derive(Debug, PartialEq)]
pub(crate) enum Kind {
    /// Commands.
    Script,
    /// Commands after `$ `, and what they print.
    Transcript,
    /// Anything else, by its language.
    Text(String),
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Marks {
    pub(crate) not_run: Option<String>,
    pub(crate) before: Vec<String>,
    pub(crate) examples: Vec<(String, String)>,
    pub(crate) input: String,
    pub(crate) code: i32,
    pub(crate) file: Option<String>,
}

impl Marks {
    fn add(&mut self, comment: &str) -> Result<(), String> {
        let Some((word, said)) = comment.trim().split_once(':') else {
            return Err(format!("not a mark: {comment}"));
        };
        let said = said.trim();
        match word {
            "not run" if said.len() > 8 => self.not_run = Some(said.to_owned()),
            "not run" => return Err("a block is not run and no reason is given".into()),
            "before" => self.before.push(said.to_owned()),
            "where" => {
                let (example, command) =
                    said.split_once(" is ").ok_or_else(|| format!("where what is what: {said}"))?;
                self.examples.push((example.to_owned(), command.to_owned()));
            }
            "input" => {
                self.input.push_str(said);
                self.input.push('\n');
            }
            "ends with" => self.code = said.parse().map_err(|_| format!("not an exit code: {said}"))?,
            "file" => self.file = Some(said.to_owned()),
            other => return Err(format!("no mark is called {other}")),
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct Block {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    pub(crate) marks: Marks,
    /// Where it begins.
    pub(crate) line: usize,
}

/// The blocks of a guide in their order.
pub(crate) fn blocks(guide: &str) -> Result<Vec<Block>, String> {
    let mut found = Vec::new();
    let mut marks = Marks::default();
    let mut lines = guide.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let at = |what: String| format!("line {}: {what}", number + 1);
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        if let Some(comment) = rest.strip_prefix("<!--") {
            let mut comment = comment.to_owned();
            while !comment.contains("-->") {
                let (_, more) = lines.next().ok_or_else(|| at("a comment without an end".into()))?;
                comment = format!("{comment}\n{more}");
            }
            let (comment, _) = comment.split_once("-->").unwrap();
            marks.add(comment).map_err(at)?;
        } else if let Some(language) = rest.strip_prefix("```") {
            let mut text = String::new();
            loop {
                let (_, inside) = lines.next().ok_or_else(|| at("a block without an end".into()))?;
                let inside = inside.strip_prefix(indent).unwrap_or(inside);
                if inside == "```" {
                    break;
                }
                text.push_str(inside);
                text.push('\n');
            }
            let kind = match language {
                "sh" | "bash" => Kind::Script,
                "console" => Kind::Transcript,
                "" => return Err(at("a block without a language".into())),
                other => Kind::Text(other.to_owned()),
            };
            found.push(Block { kind, text, marks: std::mem::take(&mut marks), line: number + 1 });
        } else if !rest.is_empty() && marks != Marks::default() {
            return Err(at("a mark that stands before no block".into()));
        }
    }
    Ok(found)
}

/// A command and what it is shown to print.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) shown: Vec<String>,
}

/// The commands of a block.
pub(crate) fn steps(kind: &Kind, text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let command = match kind {
            Kind::Script if line.trim().is_empty() || line.starts_with('#') => continue,
            Kind::Script => line,
            _ => match line.strip_prefix("$ ") {
                Some(command) => command,
                None => {
                    if let Some(step) = steps.last_mut().filter(|_| !line.is_empty()) {
                        step.shown.push(line.to_owned());
                    }
                    continue;
                }
            },
        };
        let mut command = command.to_owned();
        let end = heredoc(&command);
        while command.ends_with('\\') || end.is_some() {
            let Some(more) = lines.next() else { break };
            command = format!("{command}\n{more}");
            if end.as_deref() == Some(more) {
                break;
            }
        }
        steps.push(Step { command, shown: Vec::new() });
    }
    steps
}

/// The word that ends what is given to a command in its own lines.
fn heredoc(command: &str) -> Option<String> {
    let (_, rest) = command.split_once("<<")?;
    Some(rest.split_whitespace().next()?.trim_matches(|quote| quote == '\'' || quote == '"').to_owned())
}

#[test]
fn blocks_have_languages_and_marks() {
    let guide = "# Title\n\n<!-- not run: needs a cloud account -->\n```sh\nremuda x\n```\n\n\
                 1. List\n\n   <!-- ends with: 3 -->\n   <!-- input: one -->\n   <!-- input: two -->\n   ```console\n   \
                 $ remuda why\n   waiting\n   ```\n";
    let found = blocks(guide).unwrap();
    assert_eq!((found[0].line, found[0].marks.not_run.as_deref()), (4, Some("needs a cloud account")));
    assert_eq!((&found[1].kind, found[1].marks.code), (&Kind::Transcript, 3));
    assert_eq!(
        (found[1].marks.input.as_str(), found[1].text.as_str()),
        ("one\ntwo\n", "$ remuda why\nwaiting\n")
    );

    for (wrong, why) in [
        ("```\nremuda x\n```\n", "line 1: a block without a language"),
        ("<!-- not run: -->\n```sh\nx\n```\n", "line 1: a block is not run and no reason is given"),
        ("<!-- skip: because of me -->\n", "line 1: no mark is called skip"),
        ("<!-- before: x -->\ntext\n", "line 2: a mark that stands before no block"),
    ] {
        assert_eq!(blocks(wrong).unwrap_err(), why);
    }
}

#[test]
fn commands_may_have_several_lines() {
    let commands = |kind: &Kind, text: &str| -> Vec<String> {
        steps(kind, text).into_iter().map(|step| step.command).collect()
    };
    assert_eq!(
        commands(&Kind::Script, "# why\none \\\n  more\ntwo <<'EOF'\ntext\nEOF\n\nthree\n"),
        ["one \\\n  more", "two <<'EOF'\ntext\nEOF", "three"]
    );
    let transcript = steps(&Kind::Transcript, "$ one\nsaid\n\n$ two\n");
    assert_eq!(transcript[0].shown, ["said"]);
    assert_eq!(commands(&Kind::Transcript, "$ one\nsaid\n\n$ two\n"), ["one", "two"]);
}
