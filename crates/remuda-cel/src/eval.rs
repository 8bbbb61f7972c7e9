//! Walks the checked tree.

pub(crate) mod folds;

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Budget,
    ast::Select,
    library::{Cx, regex},
    node::{CallNode, EntryNode, Node, RegexNode, SelectNode},
    program::{Program, Vars},
    value::{EvalError, Key, Map, Result, Text, Value, equal, present},
};

pub(crate) fn run<'a>(program: &'a Program, vars: &Vars<'a>, budget: &mut Budget) -> Result<Value<'a>> {
    let mut variables = Vec::with_capacity(program.variables.len());
    for (name, ty) in &program.variables {
        variables.push(vars.get(name, ty));
    }
    let outer = budget.enter();
    let cx = Cx { budget: &mut *budget, regex: None };
    let result = Eval { variables, locals: Vec::new(), cx }.eval(&program.node);
    budget.leave(outer);
    result
}

struct Eval<'a, 'b> {
    /// A variable that cannot be read fails only the expressions that touch it.
    variables: Vec<Result<Value<'a>>>,
    locals: Vec<Value<'a>>,
    cx: Cx<'b>,
}

impl<'a> Eval<'a, '_> {
    fn eval(&mut self, node: &'a Node) -> Result<Value<'a>> {
        match node {
            Node::Literal(literal) => Ok(Value::literal(literal)),
            Node::TypeName(name) => Ok(Value::Type(Text::Borrowed(name))),
            Node::Variable(slot) => {
                self.cx.budget.charge(1)?;
                self.variables[*slot].clone()
            }
            Node::Local(slot) => {
                self.cx.budget.charge(1)?;
                Ok(self.locals[*slot].clone())
            }
            Node::Select(select) => self.select(select),
            Node::Call(call) => self.call(call),
            Node::Logic { and, terms } => self.logic(*and, terms),
            Node::Condition(parts) => match self.eval(&parts[0])? {
                Value::Bool(true) => self.eval(&parts[1]),
                Value::Bool(false) => self.eval(&parts[2]),
                _ => Err(EvalError::no_overload()),
            },
            Node::InLiterals(item, literals) => {
                let item = self.eval(item)?;
                self.cx.budget.charge(1)?;
                for literal in literals {
                    if equal(&item, &Value::literal(literal), self.cx.budget)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Regex(call) => self.regex(call),
            Node::List(entries) => self.list(entries),
            Node::Map(entries) => self.map(entries),
            Node::Message { name, fields } => self.message(name, fields),
            Node::OptMap { parts, flat } => self.opt_map(parts, *flat),
            Node::OrElse { parts, unwrap } => match self.eval(&parts[0])? {
                Value::Optional(Some(inner)) if *unwrap => Ok(Value::clone(&inner)),
                some @ Value::Optional(Some(_)) => Ok(some),
                Value::Optional(None) => self.eval(&parts[1]),
                _ => Err(EvalError::no_overload()),
            },
            Node::Invalid => Err(EvalError::failed("expression was not checked")),
        }
    }

    /// Evaluates with one more name bound.
    fn bound(&mut self, value: Value<'a>, body: &'a Node) -> Result<Value<'a>> {
        let base = self.locals.len();
        self.locals.push(value);
        let result = self.eval(body);
        self.locals.truncate(base);
        result
    }

    fn opt_map(&mut self, parts: &'a [Node; 2], flat: bool) -> Result<Value<'a>> {
        match self.eval(&parts[0])? {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => {
                let result = self.bound(Value::clone(&inner), &parts[1])?;
                Ok(if flat { result } else { Value::some(result) })
            }
            _ => Err(EvalError::no_overload()),
        }
    }

    /// A term that decides wins over errors of others; without one, the first error is the result.
    fn logic(&mut self, and: bool, terms: &'a [Node]) -> Result<Value<'a>> {
        let mut failed = None;
        for term in terms {
            self.cx.budget.tenths(1)?;
            match self.eval(term) {
                Ok(Value::Bool(bool)) if bool != and => return Ok(Value::Bool(bool)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or_else(|| Some(EvalError::no_overload())),
                Err(EvalError::Cost) => return Err(EvalError::Cost),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(and)), Err)
    }

    fn select(&mut self, select: &'a SelectNode) -> Result<Value<'a>> {
        let operand = self.eval(&select.operand)?;
        self.cx.budget.charge(1)?;
        let (operand, optional) = match operand {
            Value::Optional(Some(inner)) => (Value::clone(&inner), true),
            Value::Optional(None) if select.mode == Select::Test => return Ok(Value::Bool(false)),
            Value::Optional(None) => return Ok(Value::Optional(None)),
            other => (other, false),
        };
        let Value::Map(map) = &operand else {
            if select.mode == Select::Optional || optional {
                return Ok(Value::Optional(None));
            }
            return Err(EvalError::no_overload());
        };
        if select.mode == Select::Test {
            let key = Key::String(Text::Borrowed(&select.field));
            return Ok(Value::Bool(map.has(&key, self.cx.budget)?));
        }
        let found = match (map, &select.known) {
            (Map::Object(json, object), Some(known)) if std::ptr::eq(*object, &*known.object) => {
                present(json, &known.json).map(|json| Value::json(json, &known.ty)).transpose()?
            }
            _ => map.field(&select.field, self.cx.budget)?,
        };
        if let Some(found) = &found {
            found.charge_read(self.cx.budget)?;
        }
        if optional || select.mode == Select::Optional {
            return Ok(Value::Optional(found.map(Arc::new)));
        }
        found.ok_or_else(|| EvalError::failed(format!("no such key: {}", select.field)))
    }

    fn call(&mut self, call: &'a CallNode) -> Result<Value<'a>> {
        match call.args.as_slice() {
            [a, b] => {
                let args = [self.eval(a)?, self.eval(b)?];
                self.invoke(call, &args)
            }
            [a] => {
                let args = [self.eval(a)?];
                self.invoke(call, &args)
            }
            many => {
                let args = many.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>>>()?;
                self.invoke(call, &args)
            }
        }
    }

    fn invoke(&mut self, call: &'a CallNode, args: &[Value<'a>]) -> Result<Value<'a>> {
        self.cx.budget.charge(1)?;
        let def = match call.defs.as_slice() {
            [only] => Some(only),
            several => several.iter().find(|def| def.accepts(args)),
        };
        match def {
            Some(def) => (def.native)(&mut self.cx, args),
            None => {
                let types: Vec<&str> = args.iter().map(Value::type_name).collect();
                Err(EvalError::no_overload_of(format_args!("{}({})", call.name, types.join(", "))))
            }
        }
    }

    fn regex(&mut self, call: &'a RegexNode) -> Result<Value<'a>> {
        let target = self.eval(&call.target)?;
        let limit = match &call.limit {
            Some(limit) => self.eval(limit)?.int_arg()?,
            None => -1,
        };
        regex::apply(call.name, &call.regex, call.pattern_len, &target, limit, self.cx.budget)
    }

    fn list(&mut self, entries: &'a [EntryNode]) -> Result<Value<'a>> {
        self.cx.budget.charge(10)?;
        self.cx.budget.items(entries.len())?;
        let mut items = Vec::with_capacity(entries.len());
        for entry in entries {
            if let Some(value) = self.entry(entry)? {
                items.push(value);
            }
        }
        Ok(Value::list(items))
    }

    /// A value to put into a list or map, unless it is an absent optional one.
    fn entry(&mut self, entry: &'a EntryNode) -> Result<Option<Value<'a>>> {
        let value = self.eval(&entry.value)?;
        match (entry.optional, value) {
            (false, value) => Ok(Some(value)),
            (true, Value::Optional(inner)) => Ok(inner.map(|inner| Value::clone(&inner))),
            (true, _) => Err(EvalError::no_overload()),
        }
    }

    fn map(&mut self, entries: &'a [(Node, EntryNode)]) -> Result<Value<'a>> {
        self.cx.budget.charge(30)?;
        self.cx.budget.items(entries.len())?;
        let mut map = BTreeMap::new();
        for (key, entry) in entries {
            let key = self.eval(key)?;
            let key = Key::from_value(&key)
                .ok_or_else(|| EvalError::failed(format!("unsupported key type: {}", key.type_name())))?;
            if let Some(value) = self.entry(entry)?
                && map.insert(key.clone(), value).is_some()
            {
                return Err(EvalError::failed(format!("Failed with repeated key: {key}")));
            }
        }
        Ok(Value::Map(Map::Owned(Arc::new(map))))
    }

    fn message(&mut self, name: &Arc<str>, fields: &'a [(Arc<str>, EntryNode)]) -> Result<Value<'a>> {
        self.cx.budget.charge(40)?;
        self.cx.budget.items(fields.len())?;
        let mut made = BTreeMap::new();
        for (field, entry) in fields {
            if let Some(value) = self.entry(entry)? {
                made.insert(Key::String(Text::Shared(field.clone())), value);
            }
        }
        Ok(Value::Map(Map::Message(name.clone(), Arc::new(made))))
    }
}
