//! Compiling once, evaluating often.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::{
    Budget, EvalError,
    checker::{self, Names},
    cost::{self, Shape},
    eval,
    node::Node,
    parser,
    source::{CompileErrors, Issues},
    types::Type,
    value::Value,
};

/// The names an expression may use, with their types.
#[derive(Debug, Clone, Default)]
pub struct Env {
    variables: Vec<(String, Type)>,
    patches: bool,
}

impl Env {
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable; a later declaration of the same name replaces the earlier.
    pub fn variable(mut self, name: impl Into<String>, ty: Type) -> Self {
        let name = name.into();
        self.variables.retain(|(known, _)| *known != name);
        self.variables.push((name, ty));
        self
    }

    /// Lets expressions make what patches consist of: `Object{…}`, `Object.spec{…}` and so on, and `JSONPatch{…}`.
    pub fn with_patches(mut self) -> Self {
        self.patches = true;
        self
    }

    fn names(&self) -> Names<'_> {
        Names { variables: &self.variables, patches: self.patches }
    }

    /// Parses and checks an expression.
    pub fn compile(&self, source: &str) -> Result<Program, CompileErrors> {
        let mut issues = Issues::default();
        let checked = parser::parse(source, &mut issues)
            .and_then(|expr| checker::check(&expr, self.names(), &mut issues));
        match checked {
            Some(checked) => Ok(Program {
                node: checked.node,
                output: checked.output,
                variables: checked.used,
                selected: checked.selected,
            }),
            None => {
                if issues.is_empty() {
                    issues.report(0, "expression is invalid");
                }
                Err(issues.into_errors(source))
            }
        }
    }
}

/// A compiled expression, to be shared and evaluated any number of times.
#[derive(Debug)]
pub struct Program {
    pub(crate) node: Node,
    output: Type,
    pub(crate) variables: Vec<(String, Type)>,
    selected: BTreeSet<(usize, String)>,
}

impl Program {
    /// The type of the result, as far as it is known before evaluation.
    pub fn output(&self) -> &Type {
        &self.output
    }

    /// Whether the expression uses a variable.
    pub fn references(&self, name: &str) -> bool {
        self.variables.iter().any(|(variable, _)| variable == name)
    }

    /// The fields the expression selects directly from a variable, as in `variables.x`.
    pub fn fields<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p str> {
        let named = move |slot: usize| self.variables.get(slot).is_some_and(|(variable, _)| variable == name);
        self.selected.iter().filter(move |(slot, _)| named(*slot)).map(|(_, field)| field.as_str())
    }

    /// What an evaluation costs at most, if the data behind each variable has this shape. `source` is what the program
    /// was compiled from.
    pub fn cost(&self, source: &str, shape: &Shape) -> u64 {
        let parsed = parser::parse(source, &mut Issues::default());
        let estimate = parsed.and_then(|expr| {
            let names = Names { variables: &self.variables, patches: true };
            let types = checker::types_of(&expr, names)?;
            Some(cost::estimate(&expr, &types, shape))
        });
        // Without an estimate nothing is known to be cheap.
        estimate.unwrap_or(u64::MAX)
    }

    /// Evaluates; the value borrows from the program and from the data in `vars`.
    pub fn eval<'a>(&'a self, vars: &Vars<'a>, budget: &mut Budget) -> Result<Value<'a>, EvalError> {
        eval::run(self, vars, budget)
    }
}

/// Values for the variables of one evaluation.
#[derive(Debug, Clone, Default)]
pub struct Vars<'a> {
    entries: Vec<(&'a str, Var<'a>)>,
}

#[derive(Debug, Clone)]
enum Var<'a> {
    Json(&'a Json),
    Value(Value<'a>),
}

impl<'a> Vars<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    /// JSON, read by the type the variable is declared with. For an optional type this is
    /// the value inside.
    pub fn json(mut self, name: &'a str, json: &'a Json) -> Self {
        self.entries.push((name, Var::Json(json)));
        self
    }

    /// A value as it is, such as an absent optional or the result of another program.
    pub fn value(mut self, name: &'a str, value: Value<'a>) -> Self {
        self.entries.push((name, Var::Value(value)));
        self
    }

    pub(crate) fn get(&self, name: &str, ty: &'a Type) -> Result<Value<'a>, EvalError> {
        match self.entries.iter().find(|(known, _)| *known == name) {
            Some((_, Var::Json(json))) => Value::json(json, ty),
            Some((_, Var::Value(value))) => Ok(value.clone()),
            None => Err(EvalError::failed(format!("no such attribute(s): {name}"))),
        }
    }
}
