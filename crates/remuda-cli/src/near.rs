//! Names that were probably meant.

/// A hint with the nearest names, or with where to look for them.
pub(crate) fn hint<'a>(wanted: &str, names: impl Iterator<Item = &'a str>, list: &str) -> String {
    meant(wanted, names).unwrap_or_else(|| format!("{list} shows what there is"))
}

/// A question with the nearest names, if any is near.
pub(crate) fn meant<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut near = remuda_schema::near::names(wanted, names);
    near.truncate(3);
    match near.as_slice() {
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        [first @ .., last] => Some(format!("did you mean {} or {last}?", first.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(wanted: &str, names: &[&str], expected: &str) {
        assert_eq!(hint(wanted, names.iter().copied(), "ls"), expected);
    }

    #[test]
    fn similar_names_are_offered() {
        check("demo1", &["demo", "edge"], "did you mean demo?");
        check("dmeo", &["demo", "edge"], "did you mean demo?");
        check("prod", &["prod-eu", "prod-us", "test"], "did you mean prod-eu or prod-us?");
        check("x", &["demo"], "ls shows what there is");
        check("", &[], "ls shows what there is");
    }
}
