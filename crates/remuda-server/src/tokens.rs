//! The static token file: one `token,user,uid,"group,group"` per line, as Kubernetes reads it.

use std::{
    io,
    path::{Path, PathBuf},
};

use remuda_auth::{identity::User, tokens::StaticTokens};

#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("read --token-file {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("--token-file {}, line {line}: {reason}", .path.display())]
    Invalid { path: PathBuf, line: usize, reason: &'static str },
}

pub fn load(path: &Path) -> Result<StaticTokens, TokenFileError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| TokenFileError::Read { path: path.to_owned(), source })?;
    let mut tokens = StaticTokens::default();
    for (index, line) in text.lines().enumerate() {
        let line_text = line.trim();
        if line_text.is_empty() || line_text.starts_with('#') {
            continue;
        }
        let entry = parse(line_text);
        let (token, user) = entry.map_err(|reason| TokenFileError::Invalid {
            path: path.to_owned(),
            line: index + 1,
            reason,
        })?;
        tokens.insert(&token, user);
    }
    Ok(tokens)
}

fn parse(line: &str) -> Result<(String, User), &'static str> {
    let mut fields = split(line)?.into_iter();
    let (Some(token), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
        return Err("expected token,user,uid and perhaps \"group,group\"");
    };
    if token.is_empty() {
        return Err("the token is empty");
    }
    if name.is_empty() {
        return Err("the user is empty");
    }
    let groups = fields.next().unwrap_or_default();
    let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
    let mut user = User::new(name, groups);
    user.uid = uid;
    Ok((token, user.authenticated()))
}

/// The fields of a line; a field in double quotes may hold commas, and `""` for a quote.
fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars().peekable();
    let mut quoted = false;
    while let Some(character) = characters.next() {
        let field = fields.last_mut().expect("there is always a field");
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' if quoted || field.trim().is_empty() => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => field.push(other),
        }
    }
    if quoted {
        return Err("a quote is not closed");
    }
    Ok(fields.iter().map(|field| field.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_token_a_user_an_id_and_groups() {
        let (token, user) = parse(r#"abc, jane ,42,"system:masters, ops""#).unwrap();
        assert_eq!(token, "abc");
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "42"));
        assert_eq!(user.groups, ["system:masters", "ops", "system:authenticated"]);
        assert_eq!(parse("a,b,").unwrap().1.groups, ["system:authenticated"]);
    }

    #[test]
    fn a_bad_line_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# ours\n\na,b,c\nonly-a-token\n").unwrap();
        let error = load(file.path()).map(drop).unwrap_err().to_string();
        assert!(error.ends_with("line 4: expected token,user,uid and perhaps \"group,group\""), "{error}");
        assert_eq!(parse("a,b,c,\"x"), Err("a quote is not closed"));
        assert_eq!(parse(",b,c"), Err("the token is empty"));
    }
}
