//! Sets of field paths: what a manager owns.
//!
//! A [`Set`] is a trie of path elements in a fixed order. It borrows names and keys from the
//! object or the stored entry it was made from, so building one allocates little. The wire form
//! (`FieldsV1`) is in [`json`], operations directly on stored entries in [`raw`].

use std::{borrow::Cow, cmp::Ordering, fmt};

use serde_json::Value;

use crate::{gotext, order};

pub mod json;
pub mod raw;

/// One step of a path.
#[derive(Debug, Clone)]
pub enum PathElement<'a> {
    /// A struct field or map key.
    Field(&'a str),
    /// The list item with these key fields, sorted by name.
    Key(Vec<(Cow<'a, str>, Cow<'a, Value>)>),
    /// The member of a set.
    Value(Cow<'a, Value>),
    /// The list item at a position.
    Index(i64),
}

impl PathElement<'_> {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => {
                let pairs = left.iter().zip(right);
                pairs
                    .map(|(left, right)| left.0.cmp(&right.0).then_with(|| order::compare(&left.1, &right.1)))
                    .find(|order| order.is_ne())
                    .unwrap_or_else(|| left.len().cmp(&right.len()))
            }
            (Self::Value(left), Self::Value(right)) => order::compare(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement<'_> {}

/// As conflict messages show it: `.spec`, `[name="a"]`, `[="x"]`, `[0]`.
impl fmt::Display for PathElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                f.write_str("[")?;
                for (index, (name, value)) in keys.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", key_text(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", key_text(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn key_text(value: &Value) -> String {
    match value {
        Value::String(text) => gotext::quoted(text),
        Value::Null => "null".to_owned(),
        other => gotext::plain(other),
    }
}

/// One element of a level of the trie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node<'a> {
    pub element: PathElement<'a>,
    /// The path that ends here is in the set.
    pub member: bool,
    pub children: Set<'a>,
}

/// A set of paths. Every node is a member or leads to one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set<'a> {
    /// Sorted by element, without repetition.
    nodes: Vec<Node<'a>>,
}

impl<'a> Set<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn nodes(&self) -> &[Node<'a>] {
        &self.nodes
    }

    /// A level from nodes in any order; of repeated elements the first stays.
    pub(crate) fn from_nodes(mut nodes: Vec<Node<'a>>) -> Self {
        if !nodes.is_sorted_by(|left, right| left.element < right.element) {
            nodes.sort_by(|left, right| left.element.cmp(&right.element));
            nodes.dedup_by(|later, first| later.element == first.element);
        }
        Self { nodes }
    }

    /// Adds one path; its parents are not added.
    pub fn insert(&mut self, path: &[PathElement<'a>]) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = match self.find(first) {
            Ok(at) => at,
            Err(at) => {
                let node = Node { element: first.clone(), member: false, children: Set::new() };
                self.nodes.insert(at, node);
                at
            }
        };
        if rest.is_empty() {
            self.nodes[at].member = true;
        } else {
            self.nodes[at].children.insert(rest);
        }
    }

    pub fn has(&self, path: &[PathElement<'_>]) -> bool {
        match path.split_first() {
            None => false,
            Some((first, [])) => self.get(first).is_some_and(|node| node.member),
            Some((first, rest)) => self.get(first).is_some_and(|node| node.children.has(rest)),
        }
    }

    pub fn get(&self, element: &PathElement<'_>) -> Option<&Node<'a>> {
        self.find(element).ok().map(|at| &self.nodes[at])
    }

    fn find(&self, element: &PathElement<'_>) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    /// Keeps the nodes of the first level that `keep` accepts.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&mut Node<'a>) -> bool) {
        self.nodes.retain_mut(keep);
    }

    pub fn union(&self, other: &Set<'a>) -> Set<'a> {
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        zip(self, other, |left, right| match (left, right) {
            (Some(left), Some(right)) => nodes.push(Node {
                element: left.element.clone(),
                member: left.member || right.member,
                children: left.children.union(&right.children),
            }),
            (one, other) => nodes.extend(one.or(other).cloned()),
        });
        Set { nodes }
    }

    pub fn intersection(&self, other: &Set<'a>) -> Set<'a> {
        let mut nodes = Vec::new();
        zip(self, other, |left, right| {
            if let (Some(left), Some(right)) = (left, right) {
                push(
                    &mut nodes,
                    left,
                    left.member && right.member,
                    left.children.intersection(&right.children),
                );
            }
        });
        Set { nodes }
    }

    /// The paths not in `other`. Removing a parent leaves its children.
    pub fn difference(&self, other: &Set<'a>) -> Set<'a> {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        zip(self, other, |left, right| match (left, right) {
            (Some(left), Some(right)) => {
                push(
                    &mut nodes,
                    left,
                    left.member && !right.member,
                    left.children.difference(&right.children),
                );
            }
            (Some(left), None) => nodes.push(left.clone()),
            _ => {}
        });
        Set { nodes }
    }

    /// The paths neither in `other` nor below one of its members.
    pub fn recursive_difference(&self, other: &Set<'a>) -> Set<'a> {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        zip(self, other, |left, right| match (left, right) {
            (Some(left), Some(right)) if !right.member => {
                push(&mut nodes, left, left.member, left.children.recursive_difference(&right.children));
            }
            (Some(left), None) => nodes.push(left.clone()),
            _ => {}
        });
        Set { nodes }
    }

    /// The intersection, borrowing only from this set.
    pub(crate) fn common(&self, other: &Set<'_>) -> Set<'a> {
        let mut nodes = Vec::new();
        for node in &self.nodes {
            if let Some(found) = other.get(&node.element) {
                push(&mut nodes, node, node.member && found.member, node.children.common(&found.children));
            }
        }
        Set { nodes }
    }

    /// The difference, borrowing only from this set.
    pub(crate) fn without(&self, other: &Set<'_>) -> Set<'a> {
        let mut nodes = Vec::new();
        for node in &self.nodes {
            match other.get(&node.element) {
                Some(found) => {
                    push(
                        &mut nodes,
                        node,
                        node.member && !found.member,
                        node.children.without(&found.children),
                    );
                }
                None => nodes.push(node.clone()),
            }
        }
        Set { nodes }
    }

    /// Whether every path is in `other`.
    pub fn is_subset(&self, other: &Set<'_>) -> bool {
        self.nodes.iter().all(|node| match other.get(&node.element) {
            Some(found) => (!node.member || found.member) && node.children.is_subset(&found.children),
            None => false,
        })
    }

    /// The members that have no member below them.
    pub fn leaves(&self) -> Set<'a> {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            push(&mut nodes, node, node.member && node.children.is_empty(), node.children.leaves());
        }
        Set { nodes }
    }

    /// Every member, parents before children, in the order of conflict messages: the members of a
    /// level first.
    pub fn paths(&self) -> Vec<Vec<PathElement<'a>>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<PathElement<'a>>, paths: &mut Vec<Vec<PathElement<'a>>>) {
        for node in self.nodes.iter().filter(|node| node.member) {
            let mut path = prefix.clone();
            path.push(node.element.clone());
            paths.push(path);
        }
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            prefix.push(node.element.clone());
            node.children.collect(prefix, paths);
            prefix.pop();
        }
    }
}

/// A path as messages show it.
pub fn path_text(path: &[PathElement<'_>]) -> String {
    path.iter().map(ToString::to_string).collect()
}

fn push<'a>(nodes: &mut Vec<Node<'a>>, like: &Node<'a>, member: bool, children: Set<'a>) {
    if member || !children.is_empty() {
        nodes.push(Node { element: like.element.clone(), member, children });
    }
}

/// Walks two levels together in order.
fn zip<'s, 'a>(
    left: &'s Set<'a>,
    right: &'s Set<'a>,
    mut visit: impl FnMut(Option<&'s Node<'a>>, Option<&'s Node<'a>>),
) {
    let (mut i, mut j) = (0, 0);
    while let (Some(one), Some(other)) = (left.nodes.get(i), right.nodes.get(j)) {
        match one.element.cmp(&other.element) {
            Ordering::Less => {
                visit(Some(one), None);
                i += 1;
            }
            Ordering::Greater => {
                visit(None, Some(other));
                j += 1;
            }
            Ordering::Equal => {
                visit(Some(one), Some(other));
                i += 1;
                j += 1;
            }
        }
    }
    left.nodes[i..].iter().for_each(|node| visit(Some(node), None));
    right.nodes[j..].iter().for_each(|node| visit(None, Some(node)));
}

#[cfg(test)]
mod tests;
