//! Paths of JSON patches.

use super::{Cx, Entry};
use crate::{
    patch,
    value::{Result, Value},
};

pub(super) const TABLE: &[Entry] =
    &[Entry { name: patch::ESCAPE_KEY, native: escape_key, overloads: &["(string) -> string"] }];

/// A key as a part of a path.
fn escape_key<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let key = args[0].str_arg()?;
    cx.budget.tenths(key.len() as u64)?;
    cx.budget.bytes(key.len())?;
    Ok(Value::string(key.replace('~', "~0").replace('/', "~1")))
}
