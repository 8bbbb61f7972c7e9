//! The tree the parser makes: macros are already expanded into nodes of their own.

use std::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) struct Expr {
    /// Byte offset in the source, of the operator when there is one.
    pub(crate) at: u32,
    /// Height of the tree below, so that later passes may recurse.
    pub(crate) height: u32,
    pub(crate) kind: ExprKind,
}

#[derive(Debug, Clone)]
pub(crate) enum ExprKind {
    Literal(Literal),
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        mode: Select,
    },
    /// Operators are calls of names such as `_+_`.
    Call {
        name: String,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    /// A chain of `&&` or of `||`, flat so that long chains are not deep.
    Logic {
        and: bool,
        terms: Vec<Expr>,
    },
    List(Vec<Entry>),
    Map(Vec<(Expr, Entry)>),
    /// `Name.of.type{field: value}`
    Message {
        name: String,
        fields: Vec<(String, Entry)>,
    },
    Fold(Box<Fold>),
    /// `target.optMap(name, body)`, or `optFlatMap`.
    OptMap {
        target: Box<Expr>,
        name: String,
        body: Box<Expr>,
        flat: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Select {
    Plain,
    /// `has(a.b)`
    Test,
    /// `a.?b`
    Optional,
}

/// A list element or map value, possibly `?optional`.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) optional: bool,
    pub(crate) value: Expr,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// A comprehension: a macro that visits every element of a list or key of a map.
#[derive(Debug, Clone)]
pub(crate) struct Fold {
    pub(crate) kind: FoldKind,
    pub(crate) range: Expr,
    pub(crate) first: String,
    /// Set in the two-variable forms.
    pub(crate) second: Option<String>,
    pub(crate) filter: Option<Expr>,
    pub(crate) body: Expr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    /// `map` and `transformList`
    List,
    Filter,
    /// `transformMap`: the body is a value for the same key.
    Map,
    /// `transformMapEntry`: the body is a map to add.
    Entries,
    SortBy,
}

impl Expr {
    pub(crate) fn new(at: u32, kind: ExprKind) -> Self {
        let height = 1 + kind.height();
        Self { at, height, kind }
    }

    pub(crate) fn call(at: u32, name: impl Into<String>, args: Vec<Expr>) -> Self {
        Self::new(at, ExprKind::Call { name: name.into(), target: None, args })
    }

    /// `a.b.c` as text, when it is nothing but names.
    pub(crate) fn qualified(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.clone()),
            ExprKind::Select { operand, field, mode: Select::Plain } => {
                Some(format!("{}.{field}", operand.qualified()?))
            }
            _ => None,
        }
    }
}

impl ExprKind {
    fn height(&self) -> u32 {
        let tallest = |exprs: &[Expr]| exprs.iter().map(|expr| expr.height).max().unwrap_or(0);
        match self {
            ExprKind::Literal(_) | ExprKind::Ident(_) => 0,
            ExprKind::Select { operand, .. } => operand.height,
            ExprKind::Call { target, args, .. } => {
                tallest(args).max(target.as_ref().map_or(0, |target| target.height))
            }
            ExprKind::Logic { terms, .. } => tallest(terms),
            ExprKind::List(entries) => entries.iter().map(|entry| entry.value.height).max().unwrap_or(0),
            ExprKind::Map(entries) => {
                entries.iter().map(|(key, entry)| key.height.max(entry.value.height)).max().unwrap_or(0)
            }
            ExprKind::Message { fields, .. } => {
                fields.iter().map(|(_, entry)| entry.value.height).max().unwrap_or(0)
            }
            ExprKind::Fold(fold) => {
                let filter = fold.filter.as_ref().map_or(0, |filter| filter.height);
                fold.range.height.max(fold.body.height).max(filter)
            }
            ExprKind::OptMap { target, body, .. } => target.height.max(body.height),
        }
    }
}
