//! How names, times and plurals are written into messages.

use jiff::Timestamp;
pub use remuda_base::duration::text as duration;

/// Names joined by commas, at most `limit` of them: `a, b, ... (2 more)`.
pub fn list<S: AsRef<str>>(names: &[S], limit: usize) -> String {
    let mut parts: Vec<&str> = names.iter().take(limit).map(AsRef::as_ref).collect();
    let more = names.len().saturating_sub(limit);
    let rest = format!("... ({more} more)");
    if more > 0 {
        parts.push(&rest);
    }
    parts.join(", ")
}

/// A point in time with seconds, in UTC.
pub fn time(at: Timestamp) -> String {
    remuda_base::rfc3339(at.as_second())
}

/// The plural of a kind's name.
pub fn plural(kind: &str) -> String {
    let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| kind.ends_with(suffix));
    match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if ends(&["s", "x", "z", "ch", "sh"]) => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

/// `Machine a, b, ... are` or `Machine a is`: the beginning of sentences about some machines.
pub fn machines_are(names: &[String]) -> String {
    let one = names.len() == 1;
    let (noun, verb) = if one { ("Machine", "is") } else { ("Machines", "are") };
    format!("{noun} {} {verb}", list(names, 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_end_in_a_count() {
        assert_eq!(list(&["a", "b", "c"], 3), "a, b, c");
        assert_eq!(list(&["a", "b", "c", "d", "e"], 3), "a, b, c, ... (2 more)");
        assert_eq!(list::<&str>(&[], 3), "");
    }

    #[test]
    fn times_have_no_fraction() {
        let at: Timestamp = "2026-08-01T10:00:00.75Z".parse().unwrap();
        assert_eq!(time(at), "2026-08-01T10:00:00Z");
    }

    #[test]
    fn kinds_have_english_plurals() {
        assert_eq!(plural("Machine"), "Machines");
        assert_eq!(plural("RKEControlPlane"), "RKEControlPlanes");
        assert_eq!(plural("Proxy"), "Proxies");
        assert_eq!(plural("ClusterClass"), "ClusterClasses");
    }
}
