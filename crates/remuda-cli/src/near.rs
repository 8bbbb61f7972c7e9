//! Names that were probably meant.

/// A hint with the nearest names, or with where to look for them.
pub(crate) fn hint<'a>(wanted: &str, names: impl Iterator<Item = &'a str>, list: &str) -> String {
    let mut near: Vec<(usize, &str)> = names.map(|name| (distance(wanted, name), name)).collect();
    near.retain(|(distance, name)| *distance <= wanted.len().max(3) / 3 || name.starts_with(wanted));
    near.sort_unstable();
    let near: Vec<&str> = near.into_iter().take(3).map(|(_, name)| name).collect();
    match near.as_slice() {
        [] => format!("{list} shows what there is"),
        [one] => format!("did you mean {one}?"),
        [first @ .., last] => format!("did you mean {} or {last}?", first.join(", ")),
    }
}

/// Letters to add, take away or exchange. Names are short; longer ones are compared by their beginnings.
fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().take(253).collect();
    let other: Vec<char> = other.chars().take(253).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let replaced = before + usize::from(a != b);
            before = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(before + 1);
        }
    }
    row[other.len()]
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
        check("dmeo", &["demo", "edge"], "ls shows what there is");
        check("prod", &["prod-eu", "prod-us", "test"], "did you mean prod-eu or prod-us?");
        check("x", &["demo"], "ls shows what there is");
        check("", &[], "ls shows what there is");
    }

    #[test]
    fn distances_are_those_of_levenshtein() {
        for (one, other, expected) in
            [("", "abc", 3), ("kitten", "sitting", 3), ("same", "same", 0), ("ab", "ba", 2)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected));
        }
    }
}
