//! Comprehensions: the macros that visit every element.

use std::{collections::BTreeMap, sync::Arc};

use super::Eval;
use crate::{
    ast::FoldKind,
    node::FoldNode,
    value::{EvalError, Key, List, Map, Result, Value, compare},
};

/// What a comprehension has come to so far.
enum Accumulator<'a> {
    /// Whether all or any, with the first error met.
    Quantity(Option<EvalError>),
    Count(u64),
    List(Vec<Value<'a>>),
    Map(BTreeMap<Key<'a>, Value<'a>>),
    /// Items with the keys to sort them by.
    Sort(Vec<(Value<'a>, Value<'a>)>),
}

/// Whether to go on with the next element.
enum Next {
    More,
    Done,
}

impl<'a> Eval<'a, '_> {
    pub(super) fn fold(&mut self, fold: &'a FoldNode) -> Result<Value<'a>> {
        let range = self.eval(&fold.range)?;
        let mut accumulator = match fold.kind {
            FoldKind::All | FoldKind::Exists => Accumulator::Quantity(None),
            FoldKind::ExistsOne => Accumulator::Count(0),
            FoldKind::List | FoldKind::Filter => Accumulator::List(Vec::new()),
            FoldKind::Map | FoldKind::Entries => Accumulator::Map(BTreeMap::new()),
            FoldKind::SortBy => Accumulator::Sort(Vec::new()),
        };
        let base = self.locals.len();
        let decided = self.visit(fold, &range, &mut accumulator);
        self.locals.truncate(base);
        let decided = decided?;
        self.finish(fold.kind, accumulator, decided)
    }

    /// Visits elements until one decides.
    fn visit(
        &mut self,
        fold: &'a FoldNode,
        range: &Value<'a>,
        accumulator: &mut Accumulator<'a>,
    ) -> Result<bool> {
        match range {
            Value::List(list) => {
                for index in 0..list.len() {
                    let item = list.get(index);
                    if let Ok(item) = &item {
                        item.charge_read(self.cx.budget)?;
                    }
                    let (first, second) =
                        if fold.two { (Ok(Value::Int(index as i64)), Some(item)) } else { (item, None) };
                    if let Next::Done = self.step(fold, first, second, accumulator)? {
                        return Ok(true);
                    }
                }
            }
            Value::Map(map) => {
                let keys = map.keys()?;
                self.cx.budget.items(keys.len())?;
                for key in keys {
                    let second = if fold.two {
                        let missing = || EvalError::failed(format!("no such key: {key}"));
                        Some(map.get(&key, self.cx.budget).and_then(|value| value.ok_or_else(missing)))
                    } else {
                        None
                    };
                    if let Next::Done = self.step(fold, Ok(key.into_value()), second, accumulator)? {
                        return Ok(true);
                    }
                }
            }
            _ => return Err(EvalError::no_overload()),
        }
        Ok(false)
    }

    fn step(
        &mut self,
        fold: &'a FoldNode,
        first: Result<Value<'a>>,
        second: Option<Result<Value<'a>>>,
        accumulator: &mut Accumulator<'a>,
    ) -> Result<Next> {
        self.cx.budget.charge(2)?;
        let body = self.body(fold, first, second);
        match accumulator {
            Accumulator::Quantity(failed) => {
                let decides = fold.kind == FoldKind::Exists;
                match body {
                    Ok(Some((_, Value::Bool(bool)))) if bool == decides => return Ok(Next::Done),
                    Ok(Some((_, Value::Bool(_))) | None) => {}
                    Ok(Some(_)) => {
                        failed.get_or_insert_with(EvalError::no_overload);
                    }
                    Err(EvalError::Cost) => return Err(EvalError::Cost),
                    Err(error) => {
                        failed.get_or_insert(error);
                    }
                }
            }
            Accumulator::Count(count) => match body? {
                Some((_, Value::Bool(bool))) => *count += u64::from(bool),
                _ => return Err(EvalError::no_overload()),
            },
            Accumulator::List(items) => match (fold.kind, body?) {
                (FoldKind::Filter, Some((item, Value::Bool(keep)))) => {
                    if keep {
                        self.cx.budget.items(1)?;
                        items.push(item);
                    }
                }
                (FoldKind::Filter, _) => return Err(EvalError::no_overload()),
                (_, Some((_, value))) => {
                    self.cx.budget.items(items.len().min(1))?;
                    items.push(value);
                }
                (_, None) => {}
            },
            Accumulator::Map(map) => match (fold.kind, body?) {
                (_, None) => {}
                (FoldKind::Map, Some((key, value))) => self.insert(map, key, value)?,
                (_, Some((_, Value::Map(entries)))) => {
                    for key in entries.keys()? {
                        if let Some(value) = entries.get(&key, self.cx.budget)? {
                            self.insert(map, key.into_value(), value)?;
                        }
                    }
                }
                _ => return Err(EvalError::no_overload()),
            },
            Accumulator::Sort(items) => {
                if let Some((item, key)) = body? {
                    items.push((item, key));
                }
            }
        }
        Ok(Next::More)
    }

    /// The first name's value and the body's, or nothing when the filter leaves the element out.
    fn body(
        &mut self,
        fold: &'a FoldNode,
        first: Result<Value<'a>>,
        second: Option<Result<Value<'a>>>,
    ) -> Result<Option<(Value<'a>, Value<'a>)>> {
        let base = self.locals.len();
        let first = first?;
        self.locals.push(first);
        let result = self.body_with(fold, second);
        self.locals.truncate(base + 1);
        let first = self.locals.pop().unwrap_or(Value::Null);
        Ok(result?.map(|body| (first, body)))
    }

    fn body_with(
        &mut self,
        fold: &'a FoldNode,
        second: Option<Result<Value<'a>>>,
    ) -> Result<Option<Value<'a>>> {
        if let Some(second) = second {
            self.locals.push(second?);
        }
        if let Some(filter) = &fold.filter {
            match self.eval(filter)? {
                Value::Bool(true) => {}
                Value::Bool(false) => return Ok(None),
                _ => return Err(EvalError::no_overload()),
            }
        }
        self.eval(&fold.body).map(Some)
    }

    fn insert(
        &mut self,
        map: &mut BTreeMap<Key<'a>, Value<'a>>,
        key: Value<'a>,
        value: Value<'a>,
    ) -> Result<()> {
        self.cx.budget.items(1)?;
        let key = Key::from_value(&key)
            .ok_or_else(|| EvalError::failed(format!("unsupported key type: {}", key.type_name())))?;
        if map.contains_key(&key) {
            return Err(EvalError::failed(format!("insert failed: key {key} already exists")));
        }
        map.insert(key, value);
        Ok(())
    }

    fn finish(&mut self, kind: FoldKind, accumulator: Accumulator<'a>, decided: bool) -> Result<Value<'a>> {
        Ok(match accumulator {
            Accumulator::Quantity(_) if decided => Value::Bool(kind == FoldKind::Exists),
            Accumulator::Quantity(Some(error)) => return Err(error),
            Accumulator::Quantity(None) => Value::Bool(kind == FoldKind::All),
            Accumulator::Count(count) => Value::Bool(count == 1),
            Accumulator::List(items) => Value::list(items),
            Accumulator::Map(map) => Value::Map(Map::Owned(Arc::new(map))),
            Accumulator::Sort(items) => Value::list(sorted(items, self.cx.budget)?),
        })
    }
}

/// Items in the order of their keys; all keys must be of one comparable kind.
pub(crate) fn sorted<'a>(
    mut items: Vec<(Value<'a>, Value<'a>)>,
    budget: &mut crate::Budget,
) -> Result<Vec<Value<'a>>> {
    if let Some((_, first)) = items.first() {
        let kind = std::mem::discriminant(first);
        if !items.iter().all(|(_, key)| std::mem::discriminant(key) == kind) {
            return Err(EvalError::failed("list elements must have the same type"));
        }
    }
    // Sorting must not stop half way nor meet an error: an order that changes its mind panics.
    let mut bytes = 0;
    for (_, key) in &items {
        bytes += match key {
            Value::String(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Double(double) if double.is_nan() => {
                return Err(EvalError::failed("NaN values cannot be ordered"));
            }
            Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Bool(_) => 1,
            Value::Timestamp(_) | Value::Duration(_) => 1,
            _ => return Err(EvalError::failed("list elements must be comparable")),
        };
    }
    let rounds = u64::from(items.len().max(2).ilog2());
    budget.tenths((bytes as u64).saturating_add(items.len() as u64).saturating_mul(rounds))?;
    let mut prepaid = crate::Budget::new(u64::MAX);
    items.sort_by(|(_, a), (_, b)| compare(a, b, &mut prepaid).unwrap_or(std::cmp::Ordering::Equal));
    Ok(items.into_iter().map(|(item, _)| item).collect())
}

/// Sorts a list by its own elements.
pub(crate) fn sort<'a>(list: &List<'a>, budget: &mut crate::Budget) -> Result<Value<'a>> {
    let mut items = Vec::with_capacity(list.len());
    for item in list.iter() {
        let item = item?;
        items.push((item.clone(), item));
    }
    sorted(items, budget).map(Value::list)
}
