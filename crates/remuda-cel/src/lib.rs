//! The Common Expression Language with Kubernetes' libraries: parser, type checker, evaluator.
//!
//! ```
//! use remuda_cel::{Budget, Env, ObjectType, Type, Vars};
//! use serde_json::json;
//!
//! let spec = Type::object(ObjectType::new("Spec").field("replicas", Type::Int));
//! let rule = Env::new().variable("self", spec).compile("self.replicas <= 10").unwrap();
//! assert_eq!(rule.output(), &Type::Bool);
//!
//! let object = json!({"replicas": 3});
//! let vars = Vars::new().json("self", &object);
//! let value = rule.eval(&vars, &mut Budget::new(1_000_000)).unwrap();
//! assert_eq!(value.as_bool(), Some(true));
//! ```
//!
//! Objects are never converted up front: a declared [`Type`] says how the JSON behind a name
//! is read when an expression touches it. Everything ends: sources, depth, built values and
//! the [`Budget`] of an evaluation are bounded.

mod ast;
mod budget;
mod checker;
mod cost;
mod escape;
mod eval;
mod lexer;
mod library;
mod node;
mod parser;
pub mod patch;
mod program;
mod source;
mod time;
mod types;
mod value;
mod variables;

#[cfg(test)]
mod tests;

pub use self::{
    budget::Budget,
    cost::{Inside, Shape},
    escape::escape,
    library::authz::{Access, AccessType, Asked, Authorizer, Decision, Question},
    library::{format::NamedFormat, net::Cidr, quantity::Quantity, semver::Semver, url::Url},
    program::{Env, Program, Vars},
    source::{CompileErrors, Issue},
    time::Timestamp,
    types::{Field, ListSemantics, ListType, MapType, ObjectType, Type},
    value::{EvalError, Key, Lazy, List, Map, Text, Value},
    variables::variables,
};
