//! Lists: a view of JSON, or made by the expression.

use std::sync::Arc;

use serde_json::Value as Json;

use super::{EvalError, Result, Value, equal};
use crate::{
    Budget,
    types::{ListSemantics, ListType},
};

#[derive(Debug, Clone)]
pub enum List<'a> {
    Json(&'a Vec<Json>, &'a ListType),
    /// Lists made from a set or map list keep its type.
    Owned(Arc<Vec<Value<'a>>>, Option<&'a ListType>),
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            List::Json(items, _) => items.len(),
            List::Owned(items, _) => items.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item, which must be within the list.
    pub fn get(&self, index: usize) -> Result<Value<'a>> {
        let item = match self {
            List::Json(items, ty) => items.get(index).map(|item| Value::json(item, &ty.item)),
            List::Owned(items, _) => items.get(index).cloned().map(Ok),
        };
        item.unwrap_or_else(|| {
            Err(EvalError::failed(format!("index '{index}' out of range in list size '{}'", self.len())))
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>>> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    fn ty(&self) -> Option<&'a ListType> {
        match self {
            List::Json(_, ty) => Some(ty),
            List::Owned(_, ty) => *ty,
        }
    }

    pub(crate) fn semantics(&self) -> &'a ListSemantics {
        self.ty().map_or(&ListSemantics::Ordered, |ty| &ty.semantics)
    }

    /// `self + other`: appends, or merges when this is a set or a map list.
    pub(crate) fn concat(&self, other: &List<'a>, budget: &mut Budget) -> Result<Value<'a>> {
        let semantics = self.semantics();
        if other.is_empty() && *semantics == ListSemantics::Ordered {
            return Ok(Value::List(self.clone()));
        }
        budget.items(self.len() + other.len())?;
        let mut out = Vec::with_capacity(self.len() + other.len());
        for item in self.iter() {
            out.push(item?);
        }
        let known = out.len();
        for item in other.iter() {
            let item = item?;
            let same = match semantics {
                ListSemantics::Ordered => None,
                ListSemantics::Set => position(&out, |old| equal(old, &item, budget))?,
                ListSemantics::Map(keys) => {
                    position(&out[..known], |old| same_keys(old, &item, keys, budget))?
                }
            };
            match (same, semantics) {
                (Some(at), ListSemantics::Map(_)) => out[at] = item,
                (Some(_), _) => {}
                (None, _) => out.push(item),
            }
        }
        Ok(Value::List(List::Owned(Arc::new(out), self.ty())))
    }
}

fn position<'a>(
    items: &[Value<'a>],
    mut same: impl FnMut(&Value<'a>) -> Result<bool>,
) -> Result<Option<usize>> {
    for (index, item) in items.iter().enumerate() {
        if same(item)? {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// Whether two items of a map list have the same key fields.
pub(super) fn same_keys(a: &Value<'_>, b: &Value<'_>, keys: &[String], budget: &mut Budget) -> Result<bool> {
    let (Value::Map(a), Value::Map(b)) = (a, b) else {
        return Ok(false);
    };
    for key in keys {
        budget.tenths(1)?;
        let same = match (a.json_field(key)?, b.json_field(key)?) {
            (Some(a), Some(b)) => equal(&a, &b, budget)?,
            (None, None) => true,
            _ => false,
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}
