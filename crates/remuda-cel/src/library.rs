//! The functions expressions may call.
//!
//! Each library is a table of [`Entry`]: a name, what runs, and its overloads as text. The
//! checker picks by static types; when those leave several definitions open, the values do.

pub(crate) mod authz;
mod convert;
pub(crate) mod format;
mod lists;
pub(crate) mod net;
mod operators;
mod optional;
mod patches;
mod printf;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
mod sets;
mod strings;
mod times;
pub(crate) mod url;

use std::{collections::HashMap, sync::LazyLock};

use self::authz::AccessType;
use crate::{
    types::Type,
    value::{EvalError, Value},
};

/// What functions may use besides their arguments.
pub(crate) struct Cx<'b> {
    pub(crate) budget: &'b mut crate::Budget,
    /// The last pattern that was not a literal: loops tend to repeat it.
    pub(crate) regex: Option<(String, ::regex::Regex)>,
}

pub(crate) type Native =
    for<'a, 'b, 'c> fn(&'c mut Cx<'b>, &'c [Value<'a>]) -> std::result::Result<Value<'a>, EvalError>;

/// A row of a library's table.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) native: Native,
    /// `(string, int) -> bool` is a function, `.(string, int) -> bool` a method of a string.
    /// Single capital letters are type variables.
    pub(crate) overloads: &'static [&'static str],
}

/// An [`Entry`] with its overloads parsed.
pub(crate) struct Def {
    pub(crate) native: Native,
    pub(crate) overloads: Vec<Overload>,
}

impl std::fmt::Debug for Def {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Def").finish_non_exhaustive()
    }
}

pub(crate) struct Overload {
    pub(crate) member: bool,
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    /// Number of distinct type variables.
    pub(crate) variables: u32,
}

type Registry = HashMap<&'static str, Vec<Def>>;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let tables = [
        operators::TABLE,
        convert::TABLE,
        times::TABLE,
        strings::TABLE,
        lists::TABLE,
        sets::TABLE,
        optional::TABLE,
        regex::TABLE,
        url::TABLE,
        net::TABLE,
        quantity::TABLE,
        semver::TABLE,
        format::TABLE,
        patches::TABLE,
        authz::TABLE,
    ];
    let mut registry = Registry::new();
    for entry in tables.into_iter().flatten() {
        let overloads = entry.overloads.iter().map(|text| parse_overload(text)).collect();
        registry.entry(entry.name).or_default().push(Def { native: entry.native, overloads });
    }
    registry
});

/// The definitions under a name.
pub(crate) fn function(name: &str) -> Option<(&'static str, &'static [Def])> {
    REGISTRY.get_key_value(name).map(|(name, defs)| (*name, defs.as_slice()))
}

impl Def {
    /// Whether some overload takes these values.
    pub(crate) fn accepts(&self, args: &[Value<'_>]) -> bool {
        self.overloads.iter().any(|overload| {
            overload.params.len() == args.len()
                && overload.params.iter().zip(args).all(|(param, arg)| fits(param, arg))
        })
    }
}

fn fits(ty: &Type, value: &Value<'_>) -> bool {
    match ty {
        Type::Dyn | Type::Param(_) => true,
        Type::Bool => matches!(value, Value::Bool(_)),
        Type::Int => matches!(value, Value::Int(_)),
        Type::Uint => matches!(value, Value::Uint(_)),
        Type::Double => matches!(value, Value::Double(_)),
        Type::String => matches!(value, Value::String(_)),
        Type::Bytes => matches!(value, Value::Bytes(_)),
        Type::Timestamp => matches!(value, Value::Timestamp(_)),
        Type::Duration => matches!(value, Value::Duration(_)),
        Type::Type => matches!(value, Value::Type(_)),
        Type::List(_) => matches!(value, Value::List(_)),
        Type::Map(_) | Type::Object(_) => matches!(value, Value::Map(_)),
        Type::Optional(_) => matches!(value, Value::Optional(_)),
        Type::Quantity => matches!(value, Value::Quantity(_)),
        Type::Url => matches!(value, Value::Url(_)),
        Type::Ip => matches!(value, Value::Ip(_)),
        Type::Cidr => matches!(value, Value::Cidr(_)),
        Type::Semver => matches!(value, Value::Semver(_)),
        Type::NamedFormat => matches!(value, Value::Format(_)),
        Type::Access(ty) => matches!(value, Value::Access(access) if access.ty() == *ty),
        Type::Null => matches!(value, Value::Null),
        Type::Error => false,
    }
}

fn parse_overload(text: &'static str) -> Overload {
    let (head, result) = text.split_once("->").expect("every overload in the tables has a result");
    let head = head.trim();
    let member = head.starts_with('.');
    let inner = head.trim_start_matches('.').trim_start_matches('(');
    let inner = inner.strip_suffix(')').expect("every overload in the tables is closed");
    let mut names = Vec::new();
    let params = split(inner).into_iter().map(|param| parse_type(param, &mut names)).collect();
    let result = parse_type(result.trim(), &mut names);
    Overload { member, params, result, variables: names.len() as u32 }
}

/// Splits at commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, char) in text.char_indices() {
        match char {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(text[start..].trim());
    }
    parts
}

fn parse_type<'t>(text: &'t str, names: &mut Vec<&'t str>) -> Type {
    if let Some((outer, inner)) = text.split_once('(') {
        let inner = inner.strip_suffix(')').expect("every type in the tables is closed");
        let mut params = split(inner).into_iter().map(|param| parse_type(param, names)).collect::<Vec<_>>();
        let last = params.pop().expect("every type in the tables with brackets has a parameter");
        return match outer {
            "list" => Type::list(last),
            "optional" => Type::optional(last),
            _ => Type::map(params.pop().unwrap_or_default(), last),
        };
    }
    match text {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "type" => Type::Type,
        "quantity" => Type::Quantity,
        "url" => Type::Url,
        "ip" => Type::Ip,
        "cidr" => Type::Cidr,
        "semver" => Type::Semver,
        "format" => Type::NamedFormat,
        "authorizer" => Type::Access(AccessType::Authorizer),
        "pathcheck" => Type::Access(AccessType::PathCheck),
        "groupcheck" => Type::Access(AccessType::GroupCheck),
        "resourcecheck" => Type::Access(AccessType::ResourceCheck),
        "decision" => Type::Access(AccessType::Decision),
        variable => {
            let known = names.iter().position(|name| *name == variable);
            let id = known.unwrap_or_else(|| {
                names.push(variable);
                names.len() - 1
            });
            Type::Param(id as u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_in_the_tables_is_known() {
        for (name, defs) in REGISTRY.iter() {
            for overload in defs.iter().flat_map(|def| &def.overloads) {
                assert!(overload.variables <= 2, "{name}: a misspelt type counts as a variable");
            }
        }
    }
}
