//! An error and what caused it.

use std::{error::Error, fmt};

/// Shows an error with everything behind it: `open the store: x.log is damaged at byte 7`.
///
/// Some libraries repeat the source in their own text; such sources are left out.
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut links = Links::default();
        let mut next: Option<&dyn Error> = Some(self.0);
        while let Some(error) = next {
            links.write(f, error.to_string())?;
            next = error.source().map(|source| source as &dyn Error);
        }
        Ok(())
    }
}

/// The error with its causes.
pub fn chain(error: &dyn Error) -> String {
    Chain(error).to_string()
}

/// The same without breaks of lines, for messages that have to stay on one.
pub fn one_line(error: &dyn Error) -> String {
    chain(error).replace('\n', " ")
}

/// Writes the links of a chain one by one, for those who have another text for some of them.
#[derive(Debug, Default)]
pub struct Links {
    before: Option<String>,
}

impl Links {
    pub fn write(&mut self, f: &mut fmt::Formatter<'_>, text: String) -> fmt::Result {
        let told = self.before.as_ref().is_some_and(|before| before.contains(text.as_str()));
        if !told {
            if self.before.is_some() {
                f.write_str(": ")?;
            }
            f.write_str(&text)?;
        }
        self.before = Some(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Link>>);

    impl fmt::Display for Link {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|link| link as _)
        }
    }

    fn of(texts: &[&'static str]) -> String {
        let link = texts.iter().rev().fold(None, |behind, text| Some(Box::new(Link(text, behind))));
        one_line(&*link.unwrap())
    }

    #[test]
    fn each_cause_is_told_once() {
        assert_eq!(of(&["open", "read", "disk on fire"]), "open: read: disk on fire");
        assert_eq!(of(&["read: disk on fire", "disk on fire"]), "read: disk on fire");
        assert_eq!(of(&["a: b: c", "b: c", "c", "d"]), "a: b: c: d");
        assert_eq!(of(&["one\nline", "more"]), "one line: more");
        assert_eq!(chain(&Link("two\nlines", None)), "two\nlines");
        assert_eq!(of(&["", "inner"]), ": inner");
    }
}
