//! The text of a scenario.

/// Commands, and the narrative they gave rise to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Block {
    /// Lines with their numbers; a command may have indented lines after it.
    pub commands: Vec<(usize, String)>,
    pub expected: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    pub blocks: Vec<Block>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ScriptError {
    pub line: usize,
    pub what: &'static str,
}

const RULE: &str = "----";

impl Script {
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut blocks = Vec::new();
        let mut block = Block::default();
        let mut telling = false;
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            match (telling, line) {
                (true, "") => {
                    blocks.push(std::mem::take(&mut block));
                    telling = false;
                }
                (true, RULE) => return Err(ScriptError { line: number, what: "a second rule in a block" }),
                (true, line) => {
                    block.expected.push_str(line);
                    block.expected.push('\n');
                }
                (false, RULE) if block.commands.is_empty() => {
                    return Err(ScriptError { line: number, what: "a rule without commands before it" });
                }
                (false, RULE) => telling = true,
                (false, line) if line.trim().is_empty() || line.starts_with('#') => {}
                (false, line) if line.starts_with(' ') => {
                    let Some((_, command)) = block.commands.last_mut() else {
                        return Err(ScriptError { line: number, what: "an indented line without a command" });
                    };
                    command.push('\n');
                    command.push_str(line);
                }
                (false, line) => block.commands.push((number, line.to_owned())),
            }
        }
        if telling {
            blocks.push(block);
        } else if !block.commands.is_empty() {
            // A file may end in commands whose narrative nobody has written yet.
            blocks.push(block);
        }
        Ok(Self { blocks })
    }

    /// The same file with other narratives, one per block.
    pub fn rewrite(text: &str, narratives: &[String]) -> String {
        let mut written = String::new();
        let mut narratives = narratives.iter();
        let mut telling = false;
        let mut pending = false;
        for line in text.lines() {
            match (telling, line) {
                (true, "") => {
                    written.push('\n');
                    telling = false;
                }
                (true, _) => {}
                (false, RULE) => {
                    written.push_str("----\n");
                    written.push_str(narratives.next().map_or("", String::as_str));
                    telling = true;
                    pending = false;
                }
                (false, line) => {
                    pending |= !line.is_empty() && !line.starts_with('#');
                    written.push_str(line);
                    written.push('\n');
                }
            }
        }
        if pending {
            written.push_str("----\n");
            written.push_str(narratives.next().map_or("", String::as_str));
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# About.\n\ncluster demo\napply\n  kind: X\n\n  more: y\nsettle\n----\n1s  a\n2s  b\n\nwait 3s\n----\n";

    #[test]
    fn a_file_is_blocks_of_commands_and_narratives() {
        let script = Script::parse(TEXT).unwrap();
        assert_eq!(script.blocks.len(), 2);
        let first = &script.blocks[0];
        assert_eq!(first.expected, "1s  a\n2s  b\n");
        let commands: Vec<&str> = first.commands.iter().map(|(_, command)| command.as_str()).collect();
        assert_eq!(commands, ["cluster demo", "apply\n  kind: X\n  more: y", "settle"]);
        assert_eq!(script.blocks[1].expected, "");
    }

    #[test]
    fn rewriting_with_the_same_narratives_changes_nothing() {
        let script = Script::parse(TEXT).unwrap();
        let told: Vec<String> = script.blocks.iter().map(|block| block.expected.clone()).collect();
        assert_eq!(Script::rewrite(TEXT, &told), TEXT);
        let rewritten = Script::rewrite("settle\n", &["1s  x\n".to_owned()]);
        assert_eq!(rewritten, "settle\n----\n1s  x\n");
    }

    #[test]
    fn what_is_no_scenario_is_refused_by_line() {
        assert_eq!(Script::parse("----\n").unwrap_err().line, 1);
        assert_eq!(Script::parse("\n  indented\n").unwrap_err().line, 2);
        assert_eq!(Script::parse("a\n----\n----\n").unwrap_err().line, 3);
    }
}
