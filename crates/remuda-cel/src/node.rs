//! The checked tree that is evaluated: names are slots, calls are functions.

use std::sync::Arc;

use regex::Regex;

use crate::{
    ast::{FoldKind, Literal, Select},
    library::Def,
    types::{ObjectType, Type},
};

#[derive(Debug)]
pub(crate) enum Node {
    Literal(Literal),
    TypeName(&'static str),
    /// Index into the program's variables.
    Variable(usize),
    /// Index into the stack of names bound by macros.
    Local(usize),
    Select(Box<SelectNode>),
    Call(Box<CallNode>),
    /// A call whose pattern is a literal, compiled once.
    Regex(Box<RegexNode>),
    /// `x in [literals]`
    InLiterals(Box<Node>, Vec<Literal>),
    Logic {
        and: bool,
        terms: Vec<Node>,
    },
    Condition(Box<[Node; 3]>),
    List(Vec<EntryNode>),
    Map(Vec<(Node, EntryNode)>),
    Message {
        name: Arc<str>,
        fields: Vec<(Arc<str>, EntryNode)>,
    },
    Fold(Box<FoldNode>),
    /// The value of a name, then the body that uses it.
    OptMap {
        parts: Box<[Node; 2]>,
        flat: bool,
    },
    /// `a.or(b)` and `a.orValue(b)`: the second is evaluated only when needed.
    OrElse {
        parts: Box<[Node; 2]>,
        unwrap: bool,
    },
    /// Of an expression with reported errors; never evaluated.
    Invalid,
}

#[derive(Debug)]
pub(crate) struct SelectNode {
    pub(crate) operand: Node,
    pub(crate) field: String,
    pub(crate) mode: Select,
    /// The declared field, when the operand is an object: saves the lookup by name.
    pub(crate) known: Option<KnownField>,
}

#[derive(Debug)]
pub(crate) struct KnownField {
    pub(crate) object: Arc<ObjectType>,
    pub(crate) json: String,
    pub(crate) ty: Type,
}

#[derive(Debug)]
pub(crate) struct CallNode {
    pub(crate) name: &'static str,
    /// What may be meant; more than one only when types are not known before.
    pub(crate) defs: Vec<&'static Def>,
    pub(crate) args: Vec<Node>,
}

#[derive(Debug)]
pub(crate) struct RegexNode {
    pub(crate) name: &'static str,
    pub(crate) regex: Regex,
    pub(crate) pattern_len: usize,
    pub(crate) target: Node,
    pub(crate) limit: Option<Node>,
}

#[derive(Debug)]
pub(crate) struct EntryNode {
    pub(crate) optional: bool,
    pub(crate) value: Node,
}

#[derive(Debug)]
pub(crate) struct FoldNode {
    pub(crate) kind: FoldKind,
    pub(crate) range: Node,
    pub(crate) two: bool,
    pub(crate) filter: Option<Node>,
    pub(crate) body: Node,
}
