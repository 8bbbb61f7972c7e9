//! Calls that are syntax: they bind names or look at their argument instead of its value.

use super::{Parser, Stop};
use crate::ast::{Expr, ExprKind, Fold, FoldKind, Select};

impl Parser<'_, '_> {
    fn refuse<T>(&mut self, at: u32, message: impl Into<String>) -> Result<T, Stop> {
        self.issues.report(at, message);
        Err(Stop)
    }

    fn variable(&mut self, expr: &Expr) -> Result<String, Stop> {
        match &expr.kind {
            ExprKind::Ident(name) if name == "__result__" => {
                self.refuse(expr.at, "iteration variable overwrites accumulator variable")
            }
            ExprKind::Ident(name) => Ok(name.clone()),
            _ => self.refuse(expr.at, "argument must be a simple name"),
        }
    }

    pub(super) fn global_call(&mut self, at: u32, name: String, mut args: Vec<Expr>) -> Result<Expr, Stop> {
        if name != "has" || args.len() != 1 {
            return Ok(Expr::call(at, name, args));
        }
        let arg = args.remove(0);
        match arg.kind {
            ExprKind::Select { operand, field, mode: Select::Plain } => {
                Ok(Expr::new(at, ExprKind::Select { operand, field, mode: Select::Test }))
            }
            _ => self.refuse(arg.at, "invalid argument to has() macro"),
        }
    }

    pub(super) fn member_call(
        &mut self,
        at: u32,
        target: Expr,
        name: String,
        mut args: Vec<Expr>,
    ) -> Result<Expr, Stop> {
        let kind = match (name.as_str(), args.len()) {
            ("optMap" | "optFlatMap", 2) => {
                let flat = name == "optFlatMap";
                let variable = self.variable(&args[0])?;
                let (target, body) = (Box::new(target), Box::new(args.remove(1)));
                return Ok(Expr::new(at, ExprKind::OptMap { target, name: variable, body, flat }));
            }
            ("all", 2 | 3) => FoldKind::All,
            ("exists", 2 | 3) => FoldKind::Exists,
            ("exists_one" | "existsOne", 2 | 3) => FoldKind::ExistsOne,
            ("map", 2 | 3) | ("transformList", 3 | 4) => FoldKind::List,
            ("filter", 2) => FoldKind::Filter,
            ("transformMap", 3 | 4) => FoldKind::Map,
            ("transformMapEntry", 3 | 4) => FoldKind::Entries,
            ("sortBy", 2) => FoldKind::SortBy,
            _ => return Ok(Expr::new(at, ExprKind::Call { name, target: Some(Box::new(target)), args })),
        };
        let first = self.variable(&args[0])?;
        // `map` with three arguments has a filter, the others with three have two variables.
        let two = name != "map" && args.len() >= 3;
        let second = if two { Some(self.variable(&args[1])?) } else { None };
        if second.as_ref() == Some(&first) {
            return self.refuse(args[1].at, format!("duplicate variable name: {first}"));
        }
        let mut rest = args.drain(if two { 2 } else { 1 }..);
        let (filter, body) = match (rest.next(), rest.next()) {
            (Some(filter), Some(body)) => (Some(filter), body),
            (Some(body), None) => (None, body),
            // The counts above leave one or two arguments.
            _ => return Err(Stop),
        };
        let fold = Fold { kind, range: target, first, second, filter, body };
        Ok(Expr::new(at, ExprKind::Fold(Box::new(fold))))
    }
}
