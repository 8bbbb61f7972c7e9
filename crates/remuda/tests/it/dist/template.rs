//! As much of Helm's templates as our chart uses, so that the chart is tested where there is no Helm.
//!
//! What it does not know is a panic, never something else than Helm would make of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::chart_error;

#[derive(Debug, Clone)]
enum Node {
    Text(String),
    Print(Pipe),
    If(Vec<(Option<Pipe>, Vec<Node>)>),
}

/// Commands, each of which gets the result of the one before as its last argument.
type Pipe = Vec<Vec<Operand>>;

#[derive(Debug, Clone)]
enum Operand {
    /// `.A.B`, without the first dot.
    Path(String),
    Literal(Value),
    Function(String),
    Nested(Pipe),
}

/// Templates by name.
pub(super) type Defined = BTreeMap<String, Vec<Template>>;

/// A parsed part of a template.
#[derive(Debug, Clone)]
pub(super) struct Template(Node);

#[derive(Debug)]
enum Token {
    Text(String),
    Action(String),
}

/// The text of a template, and what it defines for others.
pub(super) fn parse(text: &str, defined: &mut Defined) -> Vec<Template> {
    let mut tokens = tokens(text).into_iter().peekable();
    let (nodes, end) = nodes(&mut tokens, defined);
    assert_eq!(end, "", "an end without a beginning");
    nodes.into_iter().map(Template).collect()
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut trim = false;
    loop {
        let Some((before, after)) = rest.split_once("{{") else {
            tokens.push(Token::Text(if trim { rest.trim_start() } else { rest }.to_owned()));
            return tokens;
        };
        let (action, after) = after.split_once("}}").expect("an action without an end");
        let mut before = if trim { before.trim_start() } else { before };
        let action = match action.strip_prefix('-') {
            Some(action) => {
                before = before.trim_end();
                action
            }
            None => action,
        };
        tokens.push(Token::Text(before.to_owned()));
        trim = action.ends_with(" -");
        tokens.push(Token::Action(action.trim_end_matches('-').trim().to_owned()));
        rest = after;
    }
}

type Tokens = std::iter::Peekable<std::vec::IntoIter<Token>>;

/// Nodes until an `end` or `else`, which is returned.
fn nodes(tokens: &mut Tokens, defined: &mut Defined) -> (Vec<Node>, String) {
    let mut found = Vec::new();
    while let Some(token) = tokens.next() {
        let action = match token {
            Token::Text(text) => {
                found.push(Node::Text(text));
                continue;
            }
            Token::Action(action) => action,
        };
        let (word, rest) = action.split_once(' ').unwrap_or((&action, ""));
        match word {
            "end" | "else" => return (found, action),
            "define" => {
                let name: String = serde_json::from_str(rest).unwrap();
                let (inner, end) = nodes(tokens, defined);
                assert_eq!(end, "end");
                defined.insert(name, inner.into_iter().map(Template).collect());
            }
            "if" => {
                let mut arms = Vec::new();
                let mut condition = Some(pipe(rest));
                loop {
                    let (inner, end) = nodes(tokens, defined);
                    arms.push((condition, inner));
                    match end.as_str() {
                        "end" => break,
                        "else" => condition = None,
                        other => condition = Some(pipe(other.strip_prefix("else if ").unwrap())),
                    }
                }
                found.push(Node::If(arms));
            }
            _ => found.push(Node::Print(pipe(&action))),
        }
    }
    (found, String::new())
}

fn pipe(text: &str) -> Pipe {
    let mut rest = text.trim();
    let mut commands = vec![Vec::new()];
    while !rest.is_empty() {
        let operand;
        (operand, rest) = match rest.chars().next().unwrap() {
            '|' => {
                commands.push(Vec::new());
                rest = rest[1..].trim_start();
                continue;
            }
            '"' => {
                let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
                let value = stream.next().unwrap().unwrap();
                let at = stream.byte_offset();
                (Operand::Literal(value), &rest[at..])
            }
            '(' => {
                let mut depth = 0;
                let end = rest.char_indices().find(|(_, c)| {
                    depth += i32::from(*c == '(') - i32::from(*c == ')');
                    depth == 0
                });
                let end = end.expect("a parenthesis without an end").0;
                (Operand::Nested(pipe(&rest[1..end])), &rest[end + 1..])
            }
            _ => {
                let end = rest.find([' ', '|', ')']).unwrap_or(rest.len());
                let word = &rest[..end];
                let operand = match word.strip_prefix('.') {
                    Some(path) => Operand::Path(path.to_owned()),
                    None => match word.parse::<i64>() {
                        Ok(number) => Operand::Literal(json!(number)),
                        Err(_) => Operand::Function(word.to_owned()),
                    },
                };
                (operand, &rest[end..])
            }
        };
        rest = rest.trim_start();
        commands.last_mut().unwrap().push(operand);
    }
    commands
}

/// What a template makes of values, or what it demands.
pub(super) fn render(template: &[Template], defined: &Defined, dot: &Value) -> Result<String, String> {
    let nodes: Vec<Node> = template.iter().map(|Template(node)| node.clone()).collect();
    write(&nodes, defined, dot)
}

fn write(nodes: &[Node], defined: &Defined, dot: &Value) -> Result<String, String> {
    let mut out = String::new();
    for node in nodes {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Print(pipe) => out.push_str(&shown(&evaluate(pipe, defined, dot)?)),
            Node::If(arms) => {
                for (condition, inner) in arms {
                    let holds = match condition {
                        Some(condition) => is_true(&evaluate(condition, defined, dot)?),
                        None => true,
                    };
                    if holds {
                        out.push_str(&write(inner, defined, dot)?);
                        break;
                    }
                }
            }
        }
    }
    Ok(out)
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(values) => !values.is_empty(),
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn evaluate(pipe: &Pipe, defined: &Defined, dot: &Value) -> Result<Value, String> {
    let mut last: Option<Value> = None;
    for command in pipe {
        let (head, arguments) = command.split_first().expect("an empty command");
        let Operand::Function(name) = head else {
            assert!(arguments.is_empty() && last.is_none(), "only functions have arguments: {command:?}");
            last = Some(operand(head, defined, dot)?);
            continue;
        };
        let mut values = Vec::new();
        for argument in arguments {
            values.push(operand(argument, defined, dot)?);
        }
        values.extend(last.take());
        last = Some(call(name, &values, defined)?);
    }
    Ok(last.expect("an empty pipe"))
}

fn operand(operand: &Operand, defined: &Defined, dot: &Value) -> Result<Value, String> {
    match operand {
        Operand::Path(path) if path.is_empty() => Ok(dot.clone()),
        Operand::Path(path) => {
            let mut value = dot;
            for name in path.split('.') {
                // A misspelt value would be nothing in Helm, and go unnoticed.
                value = value.get(name).unwrap_or_else(|| panic!("there is no .{path}"));
            }
            Ok(value.clone())
        }
        Operand::Literal(value) => Ok(value.clone()),
        Operand::Nested(pipe) => evaluate(pipe, defined, dot),
        Operand::Function(name) => call(name, &[], defined),
    }
}

fn call(name: &str, arguments: &[Value], defined: &Defined) -> Result<Value, String> {
    let text = |at: usize| shown(&arguments[at]);
    let number = |at: usize| arguments[at].as_i64().unwrap();
    Ok(match name {
        "include" => {
            let template = &defined[arguments[0].as_str().unwrap()];
            json!(render(template, defined, &arguments[1])?)
        }
        "required" if !is_true(&arguments[1]) => return Err(chart_error(&text(0))),
        "required" => arguments[1].clone(),
        "fail" => return Err(chart_error(&text(0))),
        "default" => arguments[usize::from(is_true(&arguments[1]))].clone(),
        "quote" => json!(json!(text(0)).to_string()),
        "toYaml" => json!(yaml(&arguments[0])),
        "nindent" => {
            let spaces = " ".repeat(usize::try_from(number(0)).unwrap());
            let lines: Vec<String> = text(1).split('\n').map(|line| format!("{spaces}{line}")).collect();
            json!(format!("\n{}", lines.join("\n")))
        }
        "trunc" => {
            let most = usize::try_from(number(0)).unwrap();
            json!(text(1).chars().take(most).collect::<String>())
        }
        "trimSuffix" => json!(text(1).strip_suffix(&text(0)).map_or_else(|| text(1), str::to_owned)),
        "replace" => json!(text(2).replace(&text(0), &text(1))),
        "printf" => {
            let mut out = text(0);
            for at in 1..arguments.len() {
                out = out.replacen("%s", &text(at), 1);
            }
            json!(out)
        }
        "join" => {
            let values: Vec<String> = arguments[1].as_array().unwrap().iter().map(shown).collect();
            json!(values.join(&text(0)))
        }
        "int" => json!(number(0)),
        "gt" => json!(number(0) > number(1)),
        "not" => json!(!is_true(&arguments[0])),
        "and" => arguments.iter().find(|value| !is_true(value)).or(arguments.last()).unwrap().clone(),
        "or" => arguments.iter().find(|value| is_true(value)).or(arguments.last()).unwrap().clone(),
        "sha256sum" => {
            let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text(0).as_bytes());
            json!(remuda_base::hex(digest))
        }
        other => panic!("the function {other} is not known here"),
    })
}

/// In block style on the first level, which is where templates put more beside it.
fn yaml(value: &Value) -> String {
    match value {
        Value::Object(values) if !values.is_empty() => {
            let lines: Vec<String> =
                values.iter().map(|(name, value)| format!("{}: {value}", json!(name))).collect();
            lines.join("\n")
        }
        Value::Array(values) if !values.is_empty() => {
            let lines: Vec<String> = values.iter().map(|value| format!("- {value}")).collect();
            lines.join("\n")
        }
        other => other.to_string(),
    }
}
