//! What calls cost beside their arguments, and how large their results are.

use super::{Estimate, NEW_LIST, Size};
use crate::{
    ast::{Expr, ExprKind, Literal},
    library::authz::{CHECK_COST, selector_cost},
    types::Type,
};

/// Going through a text once, for each of its characters.
const TRAVERSAL: f64 = 0.1;
/// A pattern, for each of its characters: about four make a part of it.
const PATTERN: f64 = 0.25;
/// Characters of the largest pattern behind a named format, and of a format's name.
const FORMAT_PATTERN: f64 = 128.0;
const FORMAT: u64 = 64;
/// Bytes of the longest address.
const ADDRESS: u64 = 16;

/// A function and what it is given.
pub(super) struct Callee<'c, 's> {
    pub(super) name: &'c str,
    pub(super) target: Option<&'c Estimate<'s>>,
    pub(super) args: &'c [Estimate<'s>],
    pub(super) exprs: &'c [Expr],
}

/// The nearest integer above; what is too large is as large as can be.
fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

fn is_text(ty: &Type) -> bool {
    matches!(ty, Type::String | Type::Bytes)
}

/// Sorting compares every element with every other; `keys` is the square of their number.
pub(super) fn sort_cost(keys: Size, item: &Type) -> u64 {
    scaled(keys.max, if is_text(item) { 2.0 + TRAVERSAL } else { 2.0 }).saturating_add(1)
}

impl Callee<'_, '_> {
    /// The cost of the call alone, and the size of its result where it is not that of its type.
    pub(super) fn estimate(&self) -> (u64, Option<Size>) {
        if let Some(target) = self.target
            && let Some(known) = self.method(target)
        {
            return known;
        }
        match self.args {
            [arg] => self.of_one(arg),
            [one, other] if self.target.is_none() => self.of_two(one, other),
            _ => None,
        }
        .unwrap_or((1, None))
    }

    /// Something that reads a text once.
    fn read(&self, text: Size) -> Option<(u64, Option<Size>)> {
        Some((scaled(text.max, TRAVERSAL), None))
    }

    fn method(&self, target: &Estimate<'_>) -> Option<(u64, Option<Size>)> {
        let size = target.size();
        let arg = |index: usize| self.args.get(index).map(Estimate::size);
        match self.name {
            "check" => Some((CHECK_COST, None)),
            "fieldSelector" | "labelSelector" => Some((selector_cost(arg(0)?.max), None)),
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => {
                let Some((item, of)) = item(target) else {
                    let each = if self.name == "includes" { size.max } else { scaled(size.max, TRAVERSAL) };
                    return Some((each, None));
                };
                let compare = if is_text(&item) { scaled(of.max, TRAVERSAL) } else { 0 };
                Some((size.max.saturating_mul(compare.saturating_add(1)), None))
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                Some((scaled(size.max, TRAVERSAL), Some(size)))
            }
            "replace" => Some((scaled(size.max, 2.0 * TRAVERSAL), Some(replaced(size, arg(0)?, arg(1)?)))),
            "split" => {
                let most = self.exprs.get(1).and_then(integer).unwrap_or(size.max);
                Some((scaled(size.max, 2.0 * TRAVERSAL), Some(Size { min: 0, max: most })))
            }
            "join" => {
                let items = item(target).map_or(Size::exactly(0), |(_, item)| size.times(item));
                let between = Size { min: size.min.saturating_sub(1), max: size.max.saturating_sub(1) };
                let joined = arg(0).map_or(items, |separator| items.add(separator.times(between)));
                Some((scaled(joined.max, TRAVERSAL), Some(joined)))
            }
            "matches" => Some((matched(size, arg(0)?), None)),
            "find" | "findAll" => Some((matched(size, arg(0)?), Some(Size { min: 0, max: size.max }))),
            "contains" => {
                Some((scaled(size.max, TRAVERSAL).saturating_mul(scaled(arg(0)?.max, TRAVERSAL)), None))
            }
            "startsWith" | "endsWith" => self.read(arg(0)?),
            "format" => self.read(size),
            "containsIP" => self.address(scaled(2 * ADDRESS, TRAVERSAL)),
            "containsCIDR" => self.address(scaled(2 * ADDRESS, TRAVERSAL) + scaled(ADDRESS, TRAVERSAL) + 1),
            "validate" => Some((scaled(scaled(arg(0)?.max, TRAVERSAL), FORMAT_PATTERN * PATTERN), None)),
            // The address of a range is a field of it.
            "ip" => Some((1, None)),
            "slice" => {
                let start = self.exprs.first().and_then(integer).unwrap_or(0);
                let end = self.exprs.get(1).and_then(integer).unwrap_or(size.max);
                Some(made(1.0, Size::exactly(end.wrapping_sub(start))))
            }
            "reverse" => Some(made(1.0, size)),
            "flatten" => {
                let depth = self.exprs.first().map_or(1, |depth| integer(depth).unwrap_or(u64::MAX));
                Some(made(depth as f64, size))
            }
            "distinct" => Some(made(2.0, size.times(size))),
            "sort" => {
                let keys = size.times(size);
                let (item, _) = item(target)?;
                Some((sort_cost(keys, &item).saturating_add(NEW_LIST), Some(keys)))
            }
            _ => None,
        }
    }

    /// An address that is given as a text is read first.
    fn address(&self, cost: u64) -> Option<(u64, Option<Size>)> {
        let arg = self.args.first()?;
        let read = if arg.ty == Type::String { scaled(arg.size().max, TRAVERSAL) } else { 0 };
        Some((cost.saturating_add(read), None))
    }

    fn of_one(&self, arg: &Estimate<'_>) -> Option<(u64, Option<Size>)> {
        let size = arg.size();
        match self.name {
            "url" => Some((scaled(size.max, TRAVERSAL), Some(size))),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                self.read(size)
            }
            "ip.isCanonical" => Some((scaled(size.max, 2.0 * TRAVERSAL), None)),
            "bytes" if !matches!(arg.ty, Type::Bytes) => {
                let result = Size { min: size.min, max: size.max.saturating_mul(4) };
                Some((scaled(size.max, TRAVERSAL), Some(result)))
            }
            "string" if matches!(arg.ty, Type::Bytes | Type::Dyn) => {
                let result = Size { min: size.min / 4, max: size.max };
                Some((scaled(size.max, TRAVERSAL).max(1), Some(result)))
            }
            "strings.quote" => {
                let result = size.add(size).add(Size::exactly(2));
                Some((scaled(size.max, TRAVERSAL), Some(Size { min: size.min.saturating_add(2), ..result })))
            }
            "lists.range" => {
                let count = self.exprs.first().and_then(integer).unwrap_or(u64::MAX);
                Some(made(1.0, Size::exactly(count)))
            }
            _ => None,
        }
    }

    fn of_two(&self, one: &Estimate<'_>, other: &Estimate<'_>) -> Option<(u64, Option<Size>)> {
        let both = [&one.ty, &other.ty];
        let open = both.iter().all(|ty| matches!(ty, Type::Dyn));
        let text = both.iter().any(|ty| is_text(ty));
        let (left, right) = (one.size(), other.size());
        let compared = || scaled(left.max.min(right.max), TRAVERSAL);
        let sets = |factor: f64| scaled(left.times(right).max, factor).saturating_add(1);
        let cost = match self.name {
            "_==_" if one.ty == other.ty => match one.ty {
                Type::Ip | Type::Cidr | Type::Quantity | Type::Semver => 1,
                Type::NamedFormat => scaled(FORMAT, TRAVERSAL),
                Type::Url => scaled(other.size.map_or(1, |size| size.max), TRAVERSAL),
                _ => compared(),
            },
            "_==_" | "_!=_" => compared(),
            "_<_" | "_<=_" | "_>_" | "_>=_" if text => compared(),
            "_<_" | "_<=_" | "_>_" | "_>=_" if open => compared().max(1),
            "_+_" => {
                let size = left.add(right);
                let list = both.iter().any(|ty| matches!(ty, Type::List(_)));
                return match (text, list, open) {
                    (true, _, _) => Some((scaled(size.max, TRAVERSAL), Some(size))),
                    (_, true, _) => Some((1, Some(size))),
                    (_, _, true) => Some((scaled(size.max, TRAVERSAL).max(1), Some(size))),
                    _ => None,
                };
            }
            "@in" if !matches!(other.ty, Type::Map(_)) => right.max,
            "matches" => matched(left, right),
            "sets.contains" | "sets.intersects" => sets(1.0),
            "sets.equivalent" => sets(2.0),
            "quantity" | "isQuantity" | "semver" | "isSemver" | "cidr" | "isIP" | "ip" => {
                return self.read(left);
            }
            _ => return None,
        };
        Some((cost, None))
    }
}

/// Type and size of the items of a list.
fn item(list: &Estimate<'_>) -> Option<(Type, Size)> {
    let Type::List(ty) = &list.ty else { return None };
    let of = list.place.shape().and_then(super::Shape::element);
    let of = of.map(|shape| Size { min: 0, max: shape.max });
    Some((ty.item.clone(), of.unwrap_or(Size::UNKNOWN)))
}

/// A call that makes a list of this size.
fn made(factor: f64, size: Size) -> (u64, Option<Size>) {
    (scaled(size.max, factor).saturating_add(NEW_LIST + 1), Some(size))
}

/// A pattern may be tried at every character, also behind the last one.
fn matched(text: Size, pattern: Size) -> u64 {
    scaled(text.max.saturating_add(1), TRAVERSAL).saturating_mul(scaled(pattern.max, PATTERN))
}

fn replaced(text: Size, old: Size, new: Size) -> Size {
    let times = |text: u64, old: u64| (text as f64 / old as f64).ceil() as u64;
    // An empty text is found before, between and behind all characters.
    let (most, kept_most) = match (old.min, new.max <= old.min) {
        (0, _) => (text.max.saturating_add(1), text.max),
        (_, true) => (0, text.max),
        (old, false) => (times(text.max, old), 0),
    };
    let (least, kept_least) = match (old.max, old.max <= new.min) {
        (0, _) => (text.min.saturating_add(1), text.min),
        (_, true) => (0, text.min),
        (old, false) => (times(text.min, old), 0),
    };
    Size { min: least, max: most }.times(new).add(Size { min: kept_least, max: kept_most })
}

fn integer(expr: &Expr) -> Option<u64> {
    match &expr.kind {
        ExprKind::Literal(Literal::Int(value)) => u64::try_from(*value).ok(),
        _ => None,
    }
}
