//! Resolves names and overloads, infers types, and builds the tree that is evaluated.

mod calls;
mod unify;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use self::unify::Types;
use crate::{
    ast::{Entry, Expr, ExprKind, Fold, FoldKind, Literal, Select},
    node::{EntryNode, FoldNode, KnownField, Node, SelectNode},
    patch,
    source::Issues,
    types::{ObjectType, Type},
};

/// Names of types, usable as values.
const TYPE_NAMES: &[&str] = &[
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "dyn",
    "optional_type",
    "google.protobuf.Timestamp",
    "google.protobuf.Duration",
    "net.IP",
    "net.CIDR",
    "kubernetes.Quantity",
    "kubernetes.URL",
    "kubernetes.Semver",
    "kubernetes.NamedFormat",
    "kubernetes.authorization.Authorizer",
    "kubernetes.authorization.PathCheck",
    "kubernetes.authorization.GroupCheck",
    "kubernetes.authorization.ResourceCheck",
    "kubernetes.authorization.Decision",
];

pub(crate) fn is_type_name(name: &str) -> bool {
    TYPE_NAMES.contains(&name)
}

/// How deep the type of a result may nest.
const MAX_NESTING: u32 = 300;

pub(crate) struct Checked {
    pub(crate) node: Node,
    pub(crate) output: Type,
    /// Variables that occur, in the order of their slots.
    pub(crate) used: Vec<(String, Type)>,
    /// Fields selected from variables: slot and name.
    pub(crate) selected: BTreeSet<(usize, String)>,
}

/// The types of all parts of an expression.
#[derive(Default)]
pub(crate) struct TypesOf(HashMap<usize, Type>);

impl TypesOf {
    pub(crate) fn get(&self, expr: &Expr) -> Type {
        self.0.get(&place(expr)).cloned().unwrap_or_default()
    }
}

/// Parts do not move while there is a reference to the whole.
fn place(expr: &Expr) -> usize {
    std::ptr::from_ref(expr).addr()
}

/// The types of an expression without mistakes.
pub(crate) fn types_of(expr: &Expr, names: Names<'_>) -> Option<TypesOf> {
    let mut issues = Issues::default();
    let mut checker = Checker::new(names, &mut issues);
    checker.recorded = Some(HashMap::new());
    checker.check(expr);
    let recorded = checker.recorded.take()?;
    let types = recorded.into_iter().map(|(place, ty)| (place, checker.types.resolve(&ty, true))).collect();
    issues.is_empty().then_some(TypesOf(types))
}

pub(crate) fn check(expr: &Expr, names: Names<'_>, issues: &mut Issues) -> Option<Checked> {
    let before = issues.len();
    let mut checker = Checker::new(names, issues);
    let (ty, node) = checker.check(expr);
    let output = checker.types.resolve(&ty, true);
    if checker.types.exhausted() {
        checker.issues.report(expr.at, "types of the expression are too complex");
    }
    // The result may become the type of a variable, and so grow from expression to expression.
    if nesting(&output) > MAX_NESTING {
        checker.issues.report(expr.at, "type of the expression is nested too deeply");
    }
    let (used, selected) = (checker.used, checker.selected);
    (checker.issues.len() == before).then_some(Checked { node, output, used, selected })
}

/// What an expression may refer to.
#[derive(Clone, Copy)]
pub(crate) struct Names<'e> {
    pub(crate) variables: &'e [(String, Type)],
    /// The types of patches can be made, too.
    pub(crate) patches: bool,
}

struct Checker<'e, 'i> {
    names: Names<'e>,
    used: Vec<(String, Type)>,
    selected: BTreeSet<(usize, String)>,
    /// Names bound by macros around the expression at hand.
    scope: Vec<(String, Type)>,
    types: Types,
    /// Patterns compiled so far.
    regexes: u32,
    /// By the place of the part, where they are asked for.
    recorded: Option<HashMap<usize, Type>>,
    issues: &'i mut Issues,
}

type Typed = (Type, Node);

impl<'e, 'i> Checker<'e, 'i> {
    fn new(names: Names<'e>, issues: &'i mut Issues) -> Self {
        Self {
            names,
            used: Vec::new(),
            selected: BTreeSet::new(),
            scope: Vec::new(),
            types: Types::default(),
            regexes: 0,
            recorded: None,
            issues,
        }
    }
}

impl Checker<'_, '_> {
    fn check(&mut self, expr: &Expr) -> Typed {
        let typed = self.check_kind(expr);
        if let Some(recorded) = &mut self.recorded {
            recorded.insert(place(expr), typed.0.clone());
        }
        typed
    }

    fn check_kind(&mut self, expr: &Expr) -> Typed {
        match &expr.kind {
            ExprKind::Literal(literal) => (literal_type(literal), Node::Literal(literal.clone())),
            ExprKind::Ident(name) => match self.resolve_name(name) {
                Some(typed) => typed,
                None => self.undeclared(expr.at, name),
            },
            ExprKind::Select { operand, field, mode } => self.select(expr, operand, field, *mode),
            ExprKind::Call { name, target, args } => self.call(expr, name, target.as_deref(), args),
            ExprKind::Logic { and, terms } => self.logic(*and, terms),
            ExprKind::List(entries) => self.list(entries, false),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Message { name, fields } => self.message(expr.at, name, fields),
            ExprKind::Fold(fold) => self.fold(expr.at, fold),
            ExprKind::OptMap { target, name, body, flat } => self.opt_map(expr.at, target, name, body, *flat),
        }
    }

    fn error(&mut self, at: u32, message: impl Into<String>) -> Typed {
        self.issues.report(at, message);
        (Type::Error, Node::Invalid)
    }

    fn undeclared(&mut self, at: u32, name: &str) -> Typed {
        self.error(at, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn mismatch(&mut self, at: u32, expected: &Type, found: &Type) {
        let (expected, found) = (self.types.resolve(expected, true), self.types.resolve(found, true));
        self.issues.report(at, format!("expected type '{expected}' but found '{found}'"));
    }

    fn resolve_name(&mut self, name: &str) -> Option<Typed> {
        if let Some(slot) = self.scope.iter().rposition(|(bound, _)| bound == name) {
            return Some((self.scope[slot].1.clone(), Node::Local(slot)));
        }
        if let Some((_, ty)) = self.names.variables.iter().find(|(variable, _)| variable == name) {
            let slot = self.used.iter().position(|(used, _)| used == name).unwrap_or_else(|| {
                self.used.push((name.to_owned(), ty.clone()));
                self.used.len() - 1
            });
            return Some((ty.clone(), Node::Variable(slot)));
        }
        let known = TYPE_NAMES.iter().find(|known| **known == name)?;
        Some((Type::Type, Node::TypeName(known)))
    }

    /// Checks with more names bound.
    fn within<T>(&mut self, names: &[(&str, Type)], inside: impl FnOnce(&mut Self) -> T) -> T {
        let base = self.scope.len();
        self.scope.extend(names.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone())));
        let result = inside(self);
        self.scope.truncate(base);
        result
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, mode: Select) -> Typed {
        if mode == Select::Plain
            && let Some(name) = expr.qualified()
            && let Some(typed) = self.resolve_name(&name)
        {
            return typed;
        }
        let (ty, operand) = self.check(operand);
        if let Node::Variable(slot) = operand {
            self.selected.insert((slot, field.to_owned()));
        }
        let ty = self.types.resolve(&ty, false);
        let (target, mut optional) = match &ty {
            Type::Optional(inner) => (self.types.resolve(inner, false), true),
            _ => (ty, false),
        };
        optional |= mode == Select::Optional;
        let mut known = None;
        let found = match &target {
            Type::Map(map) => map.value.clone(),
            Type::Object(object) => match object.fields.get(field) {
                Some(declared) => {
                    let (object, ty) = (Arc::clone(object), declared.ty.clone());
                    known = Some(KnownField { object, json: declared.json.clone(), ty });
                    declared.ty.clone()
                }
                None => return self.error(expr.at, format!("undefined field '{field}'")),
            },
            Type::Param(_) => {
                self.types.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            Type::Access(_) => return self.error(expr.at, format!("undefined field '{field}'")),
            _ => {
                return self.error(expr.at, format!("type '{target}' does not support field selection"));
            }
        };
        let node = SelectNode { operand, field: field.to_owned(), mode, known };
        let ty = match (mode, optional) {
            (Select::Test, _) => Type::Bool,
            (_, true) => Type::optional(found),
            (_, false) => found,
        };
        (ty, Node::Select(Box::new(node)))
    }

    fn logic(&mut self, and: bool, terms: &[Expr]) -> Typed {
        let mut nodes = Vec::with_capacity(terms.len());
        for term in terms {
            nodes.push(self.bool(term));
        }
        (Type::Bool, Node::Logic { and, terms: nodes })
    }

    /// An expression that has to be a bool.
    fn bool(&mut self, expr: &Expr) -> Node {
        let (ty, node) = self.check(expr);
        if !self.types.assignable(&ty, &Type::Bool) {
            self.mismatch(expr.at, &Type::Bool, &ty);
        }
        node
    }

    fn entry(&mut self, entry: &Entry) -> Typed {
        let (ty, node) = self.check(&entry.value);
        if !entry.optional {
            return (ty, node);
        }
        match self.types.resolve(&ty, false) {
            Type::Optional(inner) => (Type::clone(&inner), node),
            ty => {
                if !ty.is_dyn_or_error() {
                    self.mismatch(entry.value.at, &Type::optional(ty.clone()), &ty);
                }
                (ty, node)
            }
        }
    }

    /// `mixed` allows for elements of several types, as the arguments of a format are.
    fn list(&mut self, entries: &[Entry], mixed: bool) -> Typed {
        let mut item: Option<Type> = None;
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            let (ty, value) = self.entry(entry);
            nodes.push(EntryNode { optional: entry.optional, value });
            item = Some(self.element(entry.value.at, item, ty, mixed));
        }
        let item = item.unwrap_or_else(|| self.types.fresh());
        (Type::list(item), Node::List(nodes))
    }

    fn element(&mut self, at: u32, previous: Option<Type>, current: Type, mixed: bool) -> Type {
        let Some(previous) = previous else { return current };
        match self.types.join(&previous, &current) {
            Some(joined) => joined,
            None if mixed => Type::Dyn,
            None => {
                self.mismatch(at, &previous, &current);
                Type::Error
            }
        }
    }

    fn map(&mut self, entries: &[(Expr, Entry)]) -> Typed {
        let (mut key_type, mut value_type) = (None, None);
        let mut nodes = Vec::with_capacity(entries.len());
        for (key, entry) in entries {
            let (ty, key_node) = self.check(key);
            let ty = self.types.resolve(&ty, false);
            if matches!(
                ty,
                Type::List(_)
                    | Type::Map(_)
                    | Type::Object(_)
                    | Type::Optional(_)
                    | Type::Null
                    | Type::Double
            ) {
                self.issues.report(key.at, format!("unsupported key type: {ty}"));
            }
            key_type = Some(self.element(key.at, key_type, ty, false));
            let (ty, value) = self.entry(entry);
            value_type = Some(self.element(entry.value.at, value_type, ty, false));
            nodes.push((key_node, EntryNode { optional: entry.optional, value }));
        }
        let key = key_type.unwrap_or_else(|| self.types.fresh());
        let value = value_type.unwrap_or_else(|| self.types.fresh());
        (Type::map(key, value), Node::Map(nodes))
    }

    /// Types of patches: objects of any shape, named after where they are in the whole, and operations.
    fn message(&mut self, at: u32, name: &str, fields: &[(String, Entry)]) -> Typed {
        let operation = name == patch::OPERATION;
        let known = operation || name == patch::OBJECT || name.starts_with(patch::BELOW);
        if !self.names.patches || !known {
            for (_, entry) in fields {
                self.entry(entry);
            }
            return self.undeclared(at, name);
        }
        let mut nodes: Vec<(Arc<str>, EntryNode)> = Vec::with_capacity(fields.len());
        for (field, entry) in fields {
            let (ty, value) = self.entry(entry);
            let wanted = if operation { patch::operation_field(field) } else { Some(Type::Dyn) };
            match wanted {
                None => self.issues.report(entry.value.at, format!("undefined field '{field}'")),
                Some(wanted) if !self.types.assignable(&ty, &wanted) => {
                    let ty = self.types.resolve(&ty, true);
                    let message =
                        format!("expected type of field '{field}' is '{wanted}' but provided type is '{ty}'");
                    self.issues.report(entry.value.at, message);
                }
                Some(_) => {}
            }
            if nodes.iter().any(|(known, _)| **known == **field) {
                self.issues.report(entry.value.at, format!("duplicate field '{field}'"));
            }
            nodes.push((field.as_str().into(), EntryNode { optional: entry.optional, value }));
        }
        (Type::object(ObjectType::new(name)), Node::Message { name: name.into(), fields: nodes })
    }

    /// Types of the names bound by a comprehension over `range`.
    fn range(&mut self, at: u32, range: &Type, two: bool) -> (Type, Type) {
        match self.types.resolve(range, false) {
            Type::List(list) if two => (Type::Int, list.item.clone()),
            Type::List(list) => (list.item.clone(), Type::Dyn),
            Type::Map(map) => (map.key.clone(), map.value.clone()),
            range @ (Type::Dyn | Type::Error | Type::Param(_)) => {
                self.types.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            range => {
                self.issues.report(
                    at,
                    format!(
                        "expression of type '{range}' cannot be range of a comprehension (must be list, map, or dynamic)"
                    ),
                );
                (Type::Error, Type::Error)
            }
        }
    }

    fn fold(&mut self, at: u32, fold: &Fold) -> Typed {
        let (range_type, range) = self.check(&fold.range);
        let two = fold.second.is_some();
        let (first, second) = self.range(fold.range.at, &range_type, two);
        let mut names = vec![(fold.first.as_str(), first.clone())];
        if let Some(name) = &fold.second {
            names.push((name, second));
        }
        let (filter, body_type, body) = self.within(&names, |checker| {
            let filter = fold.filter.as_ref().map(|filter| checker.bool(filter));
            let (ty, body) = checker.check(&fold.body);
            (filter, ty, body)
        });
        let boolean =
            matches!(fold.kind, FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne | FoldKind::Filter);
        if boolean && !self.types.assignable(&body_type, &Type::Bool) {
            self.mismatch(fold.body.at, &Type::Bool, &body_type);
        }
        let ty = match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => Type::Bool,
            FoldKind::Filter => Type::list(first),
            FoldKind::List => Type::list(body_type),
            FoldKind::Map => Type::map(first, body_type),
            FoldKind::Entries => {
                let (key, value) = (self.types.fresh(), self.types.fresh());
                let map = Type::map(key, value);
                if !self.types.assignable(&body_type, &map) {
                    self.mismatch(fold.body.at, &map, &body_type);
                }
                map
            }
            FoldKind::SortBy => {
                let key = self.types.resolve(&body_type, true);
                if matches!(key, Type::List(_) | Type::Map(_) | Type::Object(_) | Type::Null | Type::Type) {
                    self.issues.report(
                        at,
                        format!("found no matching overload for 'sortBy' applied to '{range_type}.({key})'"),
                    );
                }
                Type::list(first)
            }
        };
        let node = FoldNode { kind: fold.kind, range, two, filter, body };
        (ty, Node::Fold(Box::new(node)))
    }

    fn opt_map(&mut self, at: u32, target: &Expr, name: &str, body: &Expr, flat: bool) -> Typed {
        let (ty, target) = self.check(target);
        let inner = self.types.fresh();
        if !self.types.assignable(&ty, &Type::optional(inner.clone())) {
            let ty = self.types.resolve(&ty, true);
            let name = if flat { "optFlatMap" } else { "optMap" };
            return self.error(at, format!("found no matching overload for '{name}' applied to '{ty}'"));
        }
        let inner = self.types.resolve(&inner, false);
        let (result, body_node) = self.within(&[(name, inner)], |checker| checker.check(body));
        let ty = if flat {
            let wanted = Type::optional(self.types.fresh());
            if !self.types.assignable(&result, &wanted) {
                self.mismatch(body.at, &wanted, &result);
            }
            result
        } else {
            Type::optional(result)
        };
        (ty, Node::OptMap { parts: Box::new([target, body_node]), flat })
    }
}

fn nesting(ty: &Type) -> u32 {
    match ty {
        Type::List(list) => 1 + nesting(&list.item),
        Type::Map(map) => 1 + nesting(&map.key).max(nesting(&map.value)),
        Type::Optional(inner) => 1 + nesting(inner),
        _ => 0,
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
