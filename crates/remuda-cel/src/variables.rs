//! Named expressions that build on one another: `variables.x` of admission policies.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use crate::{
    Budget, Program, Vars,
    value::{EvalError, Lazy, Value},
};

/// The name the definitions find each other under.
const NAME: &str = "variables";
/// How deep a value may nest. Each definition could add to the one before without end, and
/// values are compared, printed and dropped recursively.
const MAX_NESTING: u32 = 100;

/// An object with a field for each definition, to be given to programs as `variables`.
///
/// A definition is evaluated when it is first asked for, with `vars` and the definitions before
/// it, and its value is kept. Its cost is charged to whoever asked first.
pub fn variables<'a>(definitions: &'a [(String, Program)], vars: Vars<'a>) -> Value<'a> {
    let values = definitions.iter().map(|_| OnceLock::new()).collect();
    Value::lazy(Arc::new(Variables { shared: Arc::new(Shared { definitions, vars, values }) }))
}

type Slot<'a> = OnceLock<Result<Value<'a>, EvalError>>;

#[derive(Debug)]
struct Shared<'a> {
    definitions: &'a [(String, Program)],
    vars: Vars<'a>,
    values: Vec<Slot<'a>>,
}

/// Evaluates what is asked for.
#[derive(Debug)]
struct Variables<'a> {
    shared: Arc<Shared<'a>>,
}

/// What definitions see of those before them: values that are there already.
#[derive(Debug)]
struct Evaluated<'a> {
    shared: Arc<Shared<'a>>,
}

impl Shared<'_> {
    fn position(&self, name: &str) -> Option<usize> {
        self.definitions.iter().position(|(known, _)| known == name)
    }

    /// The definitions a definition needs and that have no value yet, itself included. They come
    /// in order, so that evaluating one never starts another: chains may be long.
    fn needed(&self, index: usize) -> BTreeSet<usize> {
        let mut needed = BTreeSet::new();
        let mut open = vec![index];
        while let Some(index) = open.pop() {
            if self.values[index].get().is_some() || !needed.insert(index) {
                continue;
            }
            let before = self.definitions[index].1.fields(NAME).filter_map(|name| self.position(name));
            open.extend(before.filter(|before| *before < index));
        }
        needed
    }
}

impl<'a> Lazy<'a> for Variables<'a> {
    fn field(&self, name: &str, budget: &mut Budget) -> Option<Result<Value<'a>, EvalError>> {
        let shared = &self.shared;
        let index = shared.position(name)?;
        for index in shared.needed(index) {
            let before = Value::lazy(Arc::new(Evaluated { shared: Arc::clone(shared) }));
            let vars = shared.vars.clone().value(NAME, before);
            match shared.definitions[index].1.eval(&vars, budget) {
                // The next to ask may have more to spend.
                Err(EvalError::Cost) => return Some(Err(EvalError::Cost)),
                result => {
                    let result = result.and_then(|value| match value.nests_within(MAX_NESTING, budget) {
                        Ok(true) => Ok(value),
                        Ok(false) => Err(EvalError::failed("value of a variable is nested too deeply")),
                        Err(error) => Err(error),
                    });
                    if let Err(EvalError::Cost) = result {
                        return Some(Err(EvalError::Cost));
                    }
                    shared.values[index].get_or_init(|| result);
                }
            }
        }
        shared.values[index].get().cloned()
    }
}

impl<'a> Lazy<'a> for Evaluated<'a> {
    fn field(&self, name: &str, _: &mut Budget) -> Option<Result<Value<'a>, EvalError>> {
        let index = self.shared.position(name)?;
        let missing = || Err(EvalError::failed(format!("variable {name} is not known yet")));
        Some(self.shared.values[index].get().cloned().unwrap_or_else(missing))
    }
}
