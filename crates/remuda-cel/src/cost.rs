//! What an expression costs at most, estimated before it runs on anything.
//!
//! The estimate is the one Kubernetes makes when a definition is written: sizes come from literals and from the bounds a
//! schema sets ([`Shape`]), what has no bound is as large as a request may be, and a loop costs its body once for each
//! element. Which definitions are accepted follows from these numbers, so they are promises to others.

mod calls;

use std::{collections::BTreeMap, sync::Arc};

use self::calls::Callee;
use crate::{
    ast::{Entry, Expr, ExprKind, Fold, FoldKind, Literal, Select},
    checker::{self, TypesOf},
    library,
    types::Type,
};

/// How large the data behind a type can be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shape {
    /// Characters, bytes, elements or entries at most; 0 for what has no size.
    pub max: u64,
    pub inside: Inside,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub enum Inside {
    #[default]
    Nothing,
    Items(Arc<Shape>),
    /// Of a map; its keys count as having no size.
    Values(Arc<Shape>),
    /// By CEL name.
    Fields(BTreeMap<String, Arc<Shape>>),
}

/// Keys of maps.
static KEY: Shape = Shape { max: 0, inside: Inside::Nothing };

const NEW_LIST: u64 = 10;
const NEW_MAP: u64 = 30;
const NEW_MESSAGE: u64 = 40;

/// The cost at most; every variable has the shape `root`.
pub(crate) fn estimate(expr: &Expr, types: &TypesOf, root: &Shape) -> u64 {
    Estimator { root, types, scope: Vec::new() }.expr(expr).cost
}

/// A size that is not exactly known.
#[derive(Debug, Clone, Copy)]
struct Size {
    min: u64,
    max: u64,
}

impl Size {
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    fn exactly(size: u64) -> Self {
        Self { min: size, max: size }
    }

    fn or(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }
}

/// Sizes of what a list or map holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    list: bool,
    key: Size,
    value: Size,
}

impl Held {
    fn or(self, other: Self) -> Self {
        Self { list: self.list, key: self.key.or(other.key), value: self.value.or(other.value) }
    }
}

/// What is known of an expression.
#[derive(Debug, Clone)]
struct Estimate<'s> {
    cost: u64,
    size: Option<Size>,
    held: Option<Held>,
    place: Place<'s>,
    ty: Type,
}

/// Where the data of an expression is declared.
#[derive(Debug, Clone, Copy)]
enum Place<'s> {
    /// It is not read from a variable.
    Nowhere,
    /// It is, but nothing is declared there.
    Undeclared,
    At(&'s Shape),
}

impl<'s> Place<'s> {
    fn shape(self) -> Option<&'s Shape> {
        match self {
            Self::At(shape) => Some(shape),
            Self::Nowhere | Self::Undeclared => None,
        }
    }

    fn size(self) -> Option<Size> {
        self.shape().map(|shape| Size { min: 0, max: shape.max })
    }

    /// One step down. The first step from nowhere counts as the root, whose name no path spells.
    fn below(self, root: &'s Shape, step: impl FnOnce(&'s Shape) -> Option<&'s Shape>) -> Self {
        match self {
            Self::Nowhere => Self::At(root),
            Self::Undeclared => Self::Undeclared,
            Self::At(shape) => step(shape).map_or(Self::Undeclared, Self::At),
        }
    }
}

impl Estimate<'_> {
    fn size(&self) -> Size {
        self.size.unwrap_or(Size::UNKNOWN)
    }
}

/// A name bound by a macro.
struct Local<'s> {
    name: String,
    place: Place<'s>,
    size: Option<Size>,
}

struct Estimator<'s, 't> {
    root: &'s Shape,
    types: &'t TypesOf,
    scope: Vec<Local<'s>>,
}

impl Shape {
    fn field(&self, name: &str) -> Option<&Self> {
        match &self.inside {
            Inside::Fields(fields) => fields.get(name).map(|shape| &**shape),
            _ => None,
        }
    }

    fn element(&self) -> Option<&Self> {
        match &self.inside {
            Inside::Items(shape) | Inside::Values(shape) => Some(shape),
            _ => None,
        }
    }
}

impl<'s> Estimator<'s, '_> {
    fn expr(&mut self, expr: &Expr) -> Estimate<'s> {
        let ty = self.types.get(expr);
        match &expr.kind {
            ExprKind::Literal(literal) => self.known(0, ty, Some(literal_size(literal)), Place::Nowhere),
            ExprKind::Ident(name) => self.ident(name, ty),
            ExprKind::Select { operand, field, mode } => match expr.qualified() {
                // The name of a type with dots in it is one name.
                Some(name) if checker::is_type_name(&name) => self.ident(&name, ty),
                _ => self.select(operand, field, *mode, ty),
            },
            ExprKind::Call { name, target, args } => self.call(name, target.as_deref(), args, ty),
            ExprKind::Logic { terms, .. } => {
                let cost = terms.iter().map(|term| self.expr(term).cost).fold(0, u64::saturating_add);
                self.known(cost, ty, None, Place::Nowhere)
            }
            ExprKind::List(entries) => self.list(entries, ty),
            ExprKind::Map(entries) => self.map(entries, ty),
            ExprKind::Message { fields, .. } => {
                let fields = fields.iter().map(|(_, entry)| self.expr(&entry.value).cost);
                let cost = fields.fold(NEW_MESSAGE, u64::saturating_add);
                self.known(cost, ty, None, Place::Nowhere)
            }
            ExprKind::Fold(fold) => self.fold(fold, ty),
            ExprKind::OptMap { target, name, body, flat } => self.opt_map(target, name, body, *flat, ty),
        }
    }

    /// What was computed counts for more than what is declared, and that for more than the type.
    fn known(&self, cost: u64, ty: Type, size: Option<Size>, place: Place<'s>) -> Estimate<'s> {
        let size = size.or_else(|| place.size()).or_else(|| is_scalar(&ty).then(|| Size::exactly(1)));
        Estimate { cost, size, held: None, place, ty }
    }

    fn ident(&self, name: &str, ty: Type) -> Estimate<'s> {
        match self.scope.iter().rev().find(|local| local.name == name) {
            Some(local) => {
                let known = self.known(1, ty, None, local.place);
                Estimate { size: known.size.or(local.size), ..known }
            }
            // Names of types, too: every path begins at the one declaration there is.
            None => self.known(1, ty, None, Place::At(self.root)),
        }
    }

    fn select(&mut self, operand: &Expr, field: &str, mode: Select, ty: Type) -> Estimate<'s> {
        let operand = self.expr(operand);
        match mode {
            Select::Test => self.known(operand.cost, ty, None, Place::Nowhere),
            Select::Optional => self.known(operand.cost.saturating_add(1), ty, None, Place::Nowhere),
            Select::Plain => {
                let looks = matches!(operand.ty, Type::Map(_) | Type::Object(_) | Type::Param(_));
                let cost = operand.cost.saturating_add(u64::from(looks));
                self.known(cost, ty, None, operand.place.below(self.root, |shape| shape.field(field)))
            }
        }
    }

    fn list(&mut self, entries: &[Entry], ty: Type) -> Estimate<'s> {
        let mut cost = NEW_LIST;
        let mut value: Option<Size> = None;
        for entry in entries {
            let item = self.expr(&entry.value);
            cost = cost.saturating_add(item.cost);
            value = Some(value.map_or(item.size(), |value| value.or(item.size())));
        }
        let value = value.unwrap_or(Size::exactly(0));
        let mut known = self.known(cost, ty, Some(Size::exactly(entries.len() as u64)), Place::Nowhere);
        known.held = Some(Held { list: true, key: Size::exactly(1), value });
        known
    }

    fn map(&mut self, entries: &[(Expr, Entry)], ty: Type) -> Estimate<'s> {
        let mut cost = NEW_MAP;
        let mut sizes: Option<(Size, Size)> = None;
        for (key, entry) in entries {
            let (key, value) = (self.expr(key), self.expr(&entry.value));
            cost = cost.saturating_add(key.cost).saturating_add(value.cost);
            let own = (key.size(), value.size());
            sizes = Some(sizes.map_or(own, |(key, value)| (key.or(own.0), value.or(own.1))));
        }
        let (key, value) = sizes.unwrap_or((Size::exactly(0), Size::exactly(0)));
        let mut known = self.known(cost, ty, Some(Size::exactly(entries.len() as u64)), Place::Nowhere);
        known.held = Some(Held { list: false, key, value });
        known
    }

    fn call(&mut self, name: &str, target: Option<&Expr>, args: &[Expr], ty: Type) -> Estimate<'s> {
        let namespaced = target.and_then(Expr::qualified).map(|prefix| format!("{prefix}.{name}"));
        let (name, target) = match namespaced.as_deref().and_then(library::function) {
            Some((name, _)) => (name, None),
            None => (name, target),
        };
        let target = target.map(|target| self.expr(target));
        let known: Vec<Estimate<'s>> = args.iter().map(|arg| self.expr(arg)).collect();
        if name == "_?_:_"
            && let [test, one, other] = &known[..]
        {
            let cost = test.cost.saturating_add(one.cost.max(other.cost));
            let mut result = self.known(cost, ty, Some(one.size().or(other.size())), Place::Nowhere);
            result.held = one.held.zip(other.held).map(|(one, other)| one.or(other));
            return result;
        }
        let sum = known.iter().chain(&target).map(|part| part.cost).fold(0, u64::saturating_add);
        if name == "dyn"
            && let [arg] = &known[..]
        {
            return Estimate { cost: sum.saturating_add(1), ty, place: Place::Nowhere, ..arg.clone() };
        }
        let (mut place, mut size, mut held) = (Place::Nowhere, None, None);
        let cost = match (name, &known[..]) {
            ("_[_]", [container, _]) => {
                size = container.held.map(|held| held.value);
                if matches!(container.ty, Type::List(_) | Type::Map(_)) {
                    place = container.place.below(self.root, Shape::element);
                }
                1
            }
            _ => {
                let callee = Callee { name, target: target.as_ref(), args: &known, exprs: args };
                let (cost, result) = callee.estimate();
                size = size.or(result);
                if let ("_+_", [one, other]) = (name, &known[..]) {
                    held = one.held.zip(other.held).map(|(one, other)| one.or(other));
                }
                cost
            }
        };
        let mut result = self.known(sum.saturating_add(cost), ty, size, place);
        result.held = held;
        result
    }

    fn fold(&mut self, fold: &Fold, ty: Type) -> Estimate<'s> {
        let range = self.expr(&fold.range);
        let list = range.held.map_or(matches!(range.ty, Type::List(_)), |held| held.list);
        let keys = |shape: &'s Shape| matches!(shape.inside, Inside::Values(_)).then_some(&KEY);
        let key = Local {
            name: fold.first.clone(),
            place: range.place.below(self.root, keys),
            size: range.held.map(|held| held.key),
        };
        let element = |name: &str| Local {
            name: name.to_owned(),
            place: range.place.below(self.root, Shape::element),
            size: range.held.map(|held| held.value),
        };
        let before = self.scope.len();
        match &fold.second {
            Some(second) => self.scope.extend([key, element(second)]),
            None if list => self.scope.push(element(&fold.first)),
            None => self.scope.push(key),
        }
        let filter = fold.filter.as_ref().map(|filter| self.expr(filter).cost);
        let body = self.expr(&fold.body);
        // What `filter` keeps is the variable itself.
        let own = self.ident(&fold.first, element_type(&range.ty)).size();
        self.scope.truncate(before);
        let count = range.size();
        let (start, step) = step(fold.kind, body.cost, filter);
        let looped = |step: u64| count.max.saturating_mul(step);
        let mut cost = range.cost.saturating_add(start).saturating_add(looped(step));
        let grown =
            |value: Size| Held { list: true, key: Size::exactly(1), value: Size::exactly(0).or(value) };
        let (size, held) = match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => (Size::exactly(1), None),
            FoldKind::List => (count, Some(grown(body.size()))),
            FoldKind::Filter => (count, Some(grown(own))),
            FoldKind::Map | FoldKind::Entries => (count, None),
            FoldKind::SortBy => {
                // The list is bound to a name, its keys are made as `map` makes them, and both are sorted.
                let keys = count.times(count);
                let sorted = calls::sort_cost(keys, &body.ty).saturating_add(2 * NEW_LIST + 2);
                cost = cost.saturating_add(sorted);
                (keys, None)
            }
        };
        let mut result = self.known(cost, ty, Some(size), Place::Nowhere);
        result.held = held;
        result
    }

    /// `target.hasValue() ? optional.of(body) : optional.none()`, the body with the value bound to the name.
    fn opt_map(&mut self, target: &Expr, name: &str, body: &Expr, flat: bool, ty: Type) -> Estimate<'s> {
        let target = self.expr(target);
        let size = is_scalar(&target.ty).then(|| Size::exactly(1));
        self.scope.push(Local { name: name.to_owned(), place: Place::Nowhere, size });
        let body = self.expr(body);
        self.scope.pop();
        let bound = NEW_LIST.saturating_add(target.cost).saturating_add(1).saturating_add(body.cost);
        let then = bound.saturating_add(u64::from(!flat));
        let cost = target.cost.saturating_add(1).saturating_add(then);
        self.known(cost, ty, Some(Size::UNKNOWN), Place::Nowhere)
    }
}

/// What a loop costs beside its range: once, and for each element.
fn step(kind: FoldKind, body: u64, filter: Option<u64>) -> (u64, u64) {
    // A loop reads what it has gathered so far, and the result is read once more.
    let kept = |gather: u64| match filter {
        Some(filter) => filter.saturating_add(gather.max(1)),
        None => gather,
    };
    match kind {
        FoldKind::All => (1, body.saturating_add(3)),
        FoldKind::Exists => (1, body.saturating_add(4)),
        FoldKind::ExistsOne => (2, body.saturating_add(2)),
        FoldKind::List => (NEW_LIST + 1, kept(body.saturating_add(NEW_LIST + 2))),
        FoldKind::Filter => (NEW_LIST + 1, body.saturating_add(NEW_LIST + 3)),
        FoldKind::Map => (NEW_MAP + 1, kept(body.saturating_add(3))),
        FoldKind::Entries => (NEW_MAP + 1, kept(body.saturating_add(2))),
        FoldKind::SortBy => (NEW_LIST + 1, body.saturating_add(NEW_LIST + 2)),
    }
}

fn element_type(range: &Type) -> Type {
    match range {
        Type::List(list) => list.item.clone(),
        Type::Map(map) => map.key.clone(),
        _ => Type::Dyn,
    }
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Timestamp | Type::Duration => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}

fn literal_size(literal: &Literal) -> Size {
    Size::exactly(match literal {
        Literal::String(text) => text.chars().count() as u64,
        Literal::Bytes(bytes) => bytes.len() as u64,
        _ => 1,
    })
}
