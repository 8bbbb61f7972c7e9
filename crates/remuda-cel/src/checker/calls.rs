//! Calls: which function a name and its arguments mean.

use super::{Checker, Typed, unify::identical};
use crate::{
    ast::{Expr, ExprKind, Literal},
    library::{self, Def, Overload, regex},
    node::{CallNode, Node, RegexNode},
    patch, time,
    types::Type,
};

/// Patterns of one expression that are compiled ahead; more than that would take too much memory,
/// and are compiled when they are met.
const MAX_REGEXES: u32 = 32;

impl Checker<'_, '_> {
    pub(super) fn call(&mut self, expr: &Expr, name: &str, target: Option<&Expr>, args: &[Expr]) -> Typed {
        // `a.b.c()` is the function `a.b.c` when there is one, whatever `a` may be.
        let namespaced = target.and_then(Expr::qualified).map(|prefix| format!("{prefix}.{name}"));
        let found = namespaced.as_deref().and_then(library::function);
        let (name, target) = match found.filter(|(name, _)| self.names.patches || !patch::is_function(name)) {
            Some((name, _)) => (name, None),
            None => match library::function(name) {
                Some((name, _)) => (name, target),
                None => {
                    if let Some(target) = target {
                        self.check(target);
                    }
                    for arg in args {
                        self.check(arg);
                    }
                    return self.undeclared(expr.at, name);
                }
            },
        };
        let mut types = Vec::with_capacity(args.len() + 1);
        let mut nodes = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            let (ty, node) = match &arg.kind {
                ExprKind::List(entries) if name == "format" => self.list(entries, true),
                _ => self.check(arg),
            };
            types.push(ty);
            nodes.push(node);
        }
        if name == "_?_:_" {
            return self.condition(expr, types, nodes);
        }
        let Some((ty, defs)) = self.resolve_overload(name, target.is_some(), &types) else {
            return self.no_overload(expr.at, name, target.is_some(), &types);
        };
        self.validate_literal(name, args);
        (ty, self.call_node(name, target, args, defs, nodes))
    }

    fn no_overload(&mut self, at: u32, name: &str, member: bool, types: &[Type]) -> Typed {
        if self.types.exhausted() {
            return (Type::Error, Node::Invalid);
        }
        let types: Vec<String> = types.iter().map(|ty| self.types.resolve(ty, true).to_string()).collect();
        let signature = match types.split_first() {
            Some((receiver, rest)) if member => format!("{receiver}.({})", rest.join(", ")),
            _ => format!("({})", types.join(", ")),
        };
        self.error(at, format!("found no matching overload for '{name}' applied to '{signature}'"))
    }

    fn condition(&mut self, expr: &Expr, types: Vec<Type>, nodes: Vec<Node>) -> Typed {
        let result = self.types.fresh();
        if !self.types.assignable_all(&types, &[Type::Bool, result.clone(), result.clone()]) {
            return self.no_overload(expr.at, "_?_:_", false, &types);
        }
        let ty = self.types.resolve(&result, false);
        match <[Node; 3]>::try_from(nodes) {
            Ok(nodes) => (ty, Node::Condition(Box::new(nodes))),
            Err(_) => (Type::Error, Node::Invalid),
        }
    }

    /// All definitions that accept the arguments, and their common result type.
    fn resolve_overload(
        &mut self,
        name: &str,
        member: bool,
        types: &[Type],
    ) -> Option<(Type, Vec<&'static Def>)> {
        let (_, defs) = library::function(name)?;
        let mut result: Option<Type> = None;
        let mut found: Vec<&'static Def> = Vec::new();
        for def in defs {
            let mut matched = false;
            for overload in def.overloads.iter().filter(|overload| overload.member == member) {
                let Some(ty) = self.try_overload(overload, types) else { continue };
                matched = true;
                result = Some(match result {
                    None => ty,
                    Some(known) if identical(&known, &ty) => known,
                    Some(_) => Type::Dyn,
                });
            }
            if matched {
                found.push(def);
            }
        }
        Some((result?, found))
    }

    fn try_overload(&mut self, overload: &Overload, types: &[Type]) -> Option<Type> {
        if overload.params.len() != types.len() {
            return None;
        }
        if overload.variables == 0 {
            return self.types.assignable_all(types, &overload.params).then(|| overload.result.clone());
        }
        let fresh: Vec<Type> = (0..overload.variables).map(|_| self.types.fresh()).collect();
        let params: Vec<Type> = overload.params.iter().map(|param| instantiate(param, &fresh)).collect();
        if !self.types.assignable_all(types, &params) {
            return None;
        }
        Some(self.types.resolve(&instantiate(&overload.result, &fresh), false))
    }

    /// Literals that could only fail when evaluated are refused here, as Kubernetes does.
    fn validate_literal(&mut self, name: &str, args: &[Expr]) {
        let Some(arg) = args.last() else { return };
        let ExprKind::Literal(Literal::String(text)) = &arg.kind else { return };
        let valid = match name {
            "duration" => remuda_base::duration::nanos(text).is_some(),
            "timestamp" => time::Timestamp::parse(text).is_some(),
            _ => true,
        };
        if !valid {
            self.issues.report(arg.at, format!("invalid {name} argument"));
        }
    }

    fn call_node(
        &mut self,
        name: &'static str,
        target: Option<&Expr>,
        args: &[Expr],
        defs: Vec<&'static Def>,
        mut nodes: Vec<Node>,
    ) -> Node {
        match (name, nodes.len()) {
            ("or" | "orValue", 2) => {
                if let Ok(parts) = <[Node; 2]>::try_from(nodes) {
                    return Node::OrElse { parts: Box::new(parts), unwrap: name == "orValue" };
                }
                return Node::Invalid;
            }
            ("@in", 2) => {
                if let Some(literals) = literals(&args[1]) {
                    return Node::InLiterals(Box::new(nodes.swap_remove(0)), literals);
                }
            }
            ("matches" | "find" | "findAll", 2 | 3) => {
                let pattern = if target.is_some() { args.first() } else { args.get(1) };
                if let Some(pattern) = pattern
                    && let ExprKind::Literal(Literal::String(text)) = &pattern.kind
                    && self.regexes < MAX_REGEXES
                {
                    self.regexes += 1;
                    let Ok(regex) = regex::compile(text) else {
                        self.issues.report(pattern.at, format!("invalid {name} argument"));
                        return Node::Invalid;
                    };
                    let limit = (nodes.len() == 3).then(|| nodes.swap_remove(2));
                    let target = nodes.swap_remove(0);
                    let pattern_len = text.len();
                    return Node::Regex(Box::new(RegexNode { name, regex, pattern_len, target, limit }));
                }
            }
            _ => {}
        }
        Node::Call(Box::new(CallNode { name, defs, args: nodes }))
    }
}

/// The elements of a list of nothing but literals.
fn literals(expr: &Expr) -> Option<Vec<Literal>> {
    let ExprKind::List(entries) = &expr.kind else { return None };
    let literal = |entry: &crate::ast::Entry| match &entry.value.kind {
        ExprKind::Literal(literal) if !entry.optional => Some(literal.clone()),
        _ => None,
    };
    entries.iter().map(literal).collect()
}

/// A declared type with its variables replaced.
fn instantiate(ty: &Type, fresh: &[Type]) -> Type {
    match ty {
        Type::Param(id) => fresh.get(*id as usize).cloned().unwrap_or(Type::Dyn),
        Type::List(list) => Type::list(instantiate(&list.item, fresh)),
        Type::Map(map) => Type::map(instantiate(&map.key, fresh), instantiate(&map.value, fresh)),
        Type::Optional(inner) => Type::optional(instantiate(inner, fresh)),
        _ => ty.clone(),
    }
}
