//! Type variables and assignability, after the rules of cel-go.

use std::sync::Arc;

use crate::types::{ListType, MapType, Type};

/// Steps the unification of one expression may take. Types can be built that are
/// exponentially large when written out; this stops them.
const MAX_WORK: u32 = 500_000;

/// What is known of the type variables.
#[derive(Debug, Default)]
pub(super) struct Types {
    bound: Vec<Option<Type>>,
    /// Earlier bindings, to take back a failed attempt.
    trail: Vec<(u32, Option<Type>)>,
    work: u32,
}

impl Types {
    pub(super) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param(self.bound.len() as u32 - 1)
    }

    pub(super) fn exhausted(&self) -> bool {
        self.work > MAX_WORK
    }

    fn spend(&mut self) -> bool {
        self.work += 1;
        !self.exhausted()
    }

    fn find(&self, id: u32) -> Option<&Type> {
        self.bound.get(id as usize)?.as_ref()
    }

    fn bind(&mut self, id: u32, ty: Type) {
        if let Some(slot) = self.bound.get_mut(id as usize) {
            self.trail.push((id, slot.take()));
            *slot = Some(ty);
        }
    }

    /// Whether every type of `from` can stand where `to` is expected. Binds variables only
    /// when all can.
    pub(super) fn assignable_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mark = self.trail.len();
        let fits = from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.assign(from, to));
        if !fits {
            while self.trail.len() > mark {
                if let Some((id, old)) = self.trail.pop() {
                    self.bound[id as usize] = old;
                }
            }
        }
        self.trail.truncate(mark);
        fits
    }

    pub(super) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.assignable_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    fn assign(&mut self, from: &Type, to: &Type) -> bool {
        if !self.spend() {
            return false;
        }
        if let Type::Param(id) = to {
            let (valid, known) = self.substitutes(from, *id);
            if valid || known {
                return valid;
            }
        }
        if let Type::Param(id) = from {
            return self.substitutes(to, *id).0;
        }
        match (from, to) {
            _ if from.is_dyn_or_error() || to.is_dyn_or_error() => true,
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::List(from), Type::List(to)) => self.assign(&from.item, &to.item),
            (Type::Map(from), Type::Map(to)) => {
                self.assign(&from.key, &to.key) && self.assign(&from.value, &to.value)
            }
            (Type::Optional(from), Type::Optional(to)) => self.assign(from, to),
            _ => same_leaf(from, to),
        }
    }

    /// Whether `ty` can be what the variable stands for, and whether that was known before.
    fn substitutes(&mut self, ty: &Type, id: u32) -> (bool, bool) {
        if matches!(ty, Type::Param(other) if *other == id) {
            return (true, true);
        }
        if let Some(known) = self.find(id).cloned() {
            if self.assign(ty, &known) {
                let general = if self.less_specific(ty, &known) { ty.clone() } else { known };
                if !self.occurs(id, &general) {
                    self.bind(id, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.occurs(id, ty) {
            return (false, false);
        }
        self.bind(id, ty.clone());
        (true, false)
    }

    fn occurs(&mut self, id: u32, ty: &Type) -> bool {
        if !self.spend() {
            return true;
        }
        match ty {
            Type::Param(other) if *other == id => true,
            Type::Param(other) => match self.find(*other).cloned() {
                Some(known) => self.occurs(id, &known),
                None => false,
            },
            Type::List(list) => self.occurs(id, &list.item),
            Type::Map(map) => self.occurs(id, &map.key) || self.occurs(id, &map.value),
            Type::Optional(inner) => self.occurs(id, inner),
            _ => false,
        }
    }

    /// Whether `a` is equal to `b` or says less.
    fn less_specific(&mut self, a: &Type, b: &Type) -> bool {
        if !self.spend() {
            return true;
        }
        match (a, b) {
            (Type::Dyn | Type::Param(_), _) => true,
            (_, Type::Dyn | Type::Param(_)) => false,
            (Type::List(a), Type::List(b)) => self.less_specific(&a.item, &b.item),
            (Type::Map(a), Type::Map(b)) => {
                self.less_specific(&a.key, &b.key) && self.less_specific(&a.value, &b.value)
            }
            (Type::Optional(a), Type::Optional(b)) => self.less_specific(a, b),
            _ => same_leaf(a, b),
        }
    }

    /// The common type of two elements, when there is one.
    pub(super) fn join(&mut self, previous: &Type, current: &Type) -> Option<Type> {
        if !self.assignable(previous, current) {
            return None;
        }
        Some(if self.less_specific(previous, current) { previous.clone() } else { current.clone() })
    }

    /// Writes out what is known of the variables in a type; unknown ones stay, or become dyn.
    pub(super) fn resolve(&mut self, ty: &Type, to_dyn: bool) -> Type {
        if !self.spend() {
            return Type::Error;
        }
        match ty {
            Type::Param(id) => match self.find(*id).cloned() {
                Some(known) => self.resolve(&known, to_dyn),
                None if to_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(list) => match self.resolve(&list.item, to_dyn) {
                item if identical(&item, &list.item) => ty.clone(),
                item => Type::List(Arc::new(ListType { item, semantics: list.semantics.clone() })),
            },
            Type::Map(map) => {
                let (key, value) = (self.resolve(&map.key, to_dyn), self.resolve(&map.value, to_dyn));
                Type::Map(Arc::new(MapType { key, value }))
            }
            Type::Optional(inner) => Type::optional(self.resolve(inner, to_dyn)),
            _ => ty.clone(),
        }
    }
}

/// Types that may be null without saying so.
fn nullable(ty: &Type) -> bool {
    !matches!(
        ty,
        Type::Bool | Type::Int | Type::Uint | Type::Double | Type::String | Type::Bytes | Type::Type
    ) && !matches!(ty, Type::List(_) | Type::Map(_))
}

fn same_leaf(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Object(a), Type::Object(b)) => Arc::ptr_eq(a, b) || a.name == b.name,
        (Type::Access(a), Type::Access(b)) => a == b,
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}

/// Whether two types are written the same.
pub(super) fn identical(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::List(a), Type::List(b)) => identical(&a.item, &b.item),
        (Type::Map(a), Type::Map(b)) => identical(&a.key, &b.key) && identical(&a.value, &b.value),
        (Type::Optional(a), Type::Optional(b)) => identical(a, b),
        (Type::Param(a), Type::Param(b)) => a == b,
        _ => same_leaf(a, b),
    }
}
