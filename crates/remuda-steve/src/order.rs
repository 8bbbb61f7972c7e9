//! The order of rows: `sort=a,-b,ip(c)`.

use std::{cmp::Ordering, net::IpAddr};

use crate::{filter::number, path::Cell, relation::Field};

/// Fields a list is sorted by at most.
const MOST: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) field: Field,
    pub(crate) descending: bool,
    by_address: bool,
}

/// Fields that cannot be read are left out: an order is no reason to answer nothing.
pub(crate) fn parse(text: &str) -> Vec<Key> {
    let keys = text.split(',').map(str::trim).filter_map(|part| {
        let (descending, part) = match part.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, part),
        };
        let inner = part.strip_prefix("ip(").and_then(|part| part.strip_suffix(')'));
        let field = Field::parse(inner.unwrap_or(part))?;
        Some(Key { field, descending, by_address: inner.is_some() })
    });
    keys.take(MOST).collect()
}

/// A value in the form it is compared in, made once per row.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub(crate) enum Rank {
    Missing,
    Number(f64),
    Address(IpAddr),
    Text(String),
    /// There is no related object, or it says nothing.
    Unrelated,
}

impl Key {
    pub(crate) fn rank(&self, cell: &Cell) -> Rank {
        let text = cell.first();
        if text.is_empty() {
            // Behind all others, as Steve has it; fields of the object itself have always come first.
            return if self.field.via.is_some() { Rank::Unrelated } else { Rank::Missing };
        }
        if self.by_address {
            return text.parse().map_or_else(|_| Rank::Text(text.to_lowercase()), Rank::Address);
        }
        match number(text).or_else(|| age(text)) {
            Some(number) => Rank::Number(number),
            None => Rank::Text(text.to_lowercase()),
        }
    }

    pub(crate) fn compare(&self, one: &Rank, other: &Rank) -> Ordering {
        let order = one.partial_cmp(other).unwrap_or(Ordering::Equal);
        if self.descending { order.reverse() } else { order }
    }
}

/// Seconds of an age as people read it: `3d4h`. `None` for all else.
fn age(text: &str) -> Option<f64> {
    let (mut seconds, mut digits) = (0.0, String::new());
    if !text.starts_with(|letter: char| letter.is_ascii_digit()) || text.len() > 16 {
        return None;
    }
    for letter in text.chars() {
        let unit = match letter {
            '0'..='9' => {
                digits.push(letter);
                continue;
            }
            'y' => 365.0 * 86_400.0,
            'd' => 86_400.0,
            'h' => 3_600.0,
            'm' => 60.0,
            's' => 1.0,
            _ => return None,
        };
        seconds += std::mem::take(&mut digits).parse::<f64>().ok()? * unit;
    }
    digits.is_empty().then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sort: &str, values: &[&str], expected: &[&str]) {
        let keys = parse(sort);
        let mut values: Vec<&str> = values.to_vec();
        values.sort_by(|one, other| {
            keys[0].compare(&keys[0].rank(&Cell::text(one)), &keys[0].rank(&Cell::text(other)))
        });
        assert_eq!(values, expected);
    }

    #[test]
    fn values_are_sorted_by_what_they_mean() {
        check("a", &["b", "A", "10", "9", ""], &["", "9", "10", "A", "b"]);
        check("-a", &["b", "A", ""], &["b", "A", ""]);
        check("a", &["2Gi", "100Mi", "1"], &["1", "100Mi", "2Gi"]);
        check("a", &["3d4h", "90s", "5h"], &["90s", "5h", "3d4h"]);
        check("a=>[v1][Node][b][c]", &["", "b", "a"], &["a", "b", ""]);
        check("-a => [v1][Node][b][c]", &["b", "", "a"], &["", "b", "a"]);
        check("ip(a)", &["10.0.0.10", "10.0.0.9", "2.1.1.1"], &["2.1.1.1", "10.0.0.9", "10.0.0.10"]);
    }

    #[test]
    fn a_field_that_is_none_is_left_out() {
        assert_eq!(parse("a,,b.,-metadata.fields[2]").len(), 2);
        assert!(parse(&["a"; 100].join(",")).len() <= MOST);
    }
}
