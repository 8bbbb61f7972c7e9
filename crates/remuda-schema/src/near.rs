//! Names that were probably meant.

use crate::schema::{Additional, Schema};

/// The names nearest to a wanted one, the nearest first.
pub fn names<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut near: Vec<(usize, &str)> = known.map(|name| (distance(wanted, name), name)).collect();
    near.retain(|(distance, name)| {
        *distance <= wanted.len().max(3) / 3 || !wanted.is_empty() && name.starts_with(wanted)
    });
    near.sort_unstable();
    near.into_iter().map(|(_, name)| name).collect()
}

/// Letters to add, take away, exchange or swap with their neighbour. Names are short; longer ones are compared by
/// their beginnings.
fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().take(253).collect();
    let other: Vec<char> = other.chars().take(253).collect();
    let mut older = Vec::new();
    let mut old: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut least = (old[j] + usize::from(a != b)).min(old[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(least_swap(&older, j));
            }
            row.push(least);
        }
        older = old;
        old = row;
    }
    old[other.len()]
}

fn least_swap(older: &[usize], j: usize) -> usize {
    older.get(j - 1).map_or(usize::MAX, |before| before + 1)
}

impl Schema {
    /// The known field a dropped one was probably meant to be; `path` is as pruning reports it.
    pub fn nearest(&self, path: &str) -> Option<String> {
        let mut node = self;
        let mut rest = path;
        // Names may hold dots and brackets themselves, so known names are tried before the text is cut.
        loop {
            if let Some(index) = rest.strip_prefix('[') {
                node = node.items.as_deref()?;
                rest = index.split_once(']')?.1;
                rest = rest.strip_prefix('.').unwrap_or(rest);
                continue;
            }
            let known = node.properties.iter().filter(|(name, _)| {
                rest.strip_prefix(name.as_str()).is_some_and(|after| after.starts_with(['.', '[']))
            });
            match known.max_by_key(|(name, _)| name.len()) {
                Some((name, child)) => {
                    node = child;
                    rest = &rest[name.len()..];
                    rest = rest.strip_prefix('.').unwrap_or(rest);
                }
                None => match &node.additional {
                    Some(Additional::Schema(entries)) => {
                        let (_, below) = rest.split_once('.')?;
                        node = entries;
                        rest = below;
                    }
                    _ => break,
                },
            }
        }
        // Other spellings of the same words first: `machine-pools`, `KubernetesVersion`.
        let plain = |name: &str| -> String {
            name.chars()
                .filter(char::is_ascii_alphanumeric)
                .map(|letter| letter.to_ascii_lowercase())
                .collect()
        };
        let wanted = plain(rest);
        let mut fields = node.properties.keys().map(String::as_str);
        let same = fields.find(|name| !wanted.is_empty() && plain(name) == wanted);
        let near = same.or_else(|| names(rest, node.properties.keys().map(String::as_str)).first().copied());
        near.map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn distances_are_those_of_damerau_and_levenshtein() {
        for (one, other, expected) in [
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("same", "same", 0),
            ("ab", "ba", 1),
            ("sise", "size", 1),
        ] {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn the_nearest_field_is_one_of_the_same_object() {
        let schema = crate::compile(&json!({"type": "object", "properties": {
            "size": {"type": "string"},
            "spec": {"type": "object", "properties": {
                "kubernetesVersion": {"type": "string"},
                "pools": {"type": "array", "items": {"type": "object", "properties": {"quantity": {"type": "integer"}}}},
                "named": {"type": "object", "additionalProperties":
                    {"type": "object", "properties": {"endpoints": {"type": "string"}}}},
            }},
        }}))
        .unwrap();
        for (path, expected) in [
            ("sise", Some("size")),
            ("spec.kubernetesversion", Some("kubernetesVersion")),
            ("spec.kubernetes-version", Some("kubernetesVersion")),
            ("spec.kuberneteVersion", Some("kubernetesVersion")),
            ("spec.pools[3].quantty", Some("quantity")),
            ("spec.pools[3].size", None),
            ("spec.named.docker.io.endpoint", None),
            ("spec.named.mirror.endpoint", Some("endpoints")),
            ("spec.entirelyElse", None),
            ("", None),
            ("[", None),
            ("spec.pools[", None),
            ("spec.pools[0]", None),
        ] {
            assert_eq!(schema.nearest(path).as_deref(), expected, "{path}");
        }
    }
}
