//! What a registry wants to see before it answers.

/// The first line of `WWW-Authenticate` that is understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

impl Challenge {
    pub(super) fn parse(text: &str) -> Option<Challenge> {
        let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Challenge::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service) = (None, None);
        let mut rest = rest.trim_start();
        while let Some((name, after)) = rest.split_once('=') {
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => after.split_at(after.find(',').unwrap_or(after.len())),
            };
            match name.trim().to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value.to_owned()),
                "service" => service = Some(value.to_owned()),
                _ => {}
            }
            rest = after.trim_start_matches([',', ' ']);
        }
        realm.map(|realm| Challenge::Bearer { realm, service })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn challenges_are_understood() {
        let bearer =
            Challenge::parse(r#"Bearer realm="https://a/token",service="r, x",scope="a:b:pull,push""#);
        let expected =
            Challenge::Bearer { realm: "https://a/token".to_owned(), service: Some("r, x".to_owned()) };
        assert_eq!(bearer, Some(expected));
        assert_eq!(Challenge::parse("basic realm=x"), Some(Challenge::Basic));
        assert_eq!(Challenge::parse("Bearer service=x"), None);
        assert_eq!(Challenge::parse("Negotiate"), None);
        assert_eq!(Challenge::parse(r#"Bearer realm="x"#), None);
    }

    proptest! {
        #[test]
        fn parsing_never_fails_badly(text in ".{0,200}") {
            let _ = Challenge::parse(&text);
            let _ = Challenge::parse(&format!("Bearer {text}"));
        }
    }
}
