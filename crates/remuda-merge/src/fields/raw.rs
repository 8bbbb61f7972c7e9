//! Set operations on the stored JSON form.
//!
//! Most writes take a field or two from a few managers. Working on the entry as it is stored
//! spares reading and writing sets that hardly change. The stored form must be canonical, which
//! entries written by this crate are.

use serde_json::{Map, Value, map::Entry};

use super::{Node, Set, json::write_element};

type Fields = Map<String, Value>;

/// Removes the members of `set`; tells whether anything changed.
pub fn subtract(fields: &mut Fields, set: &Set<'_>) -> bool {
    subtract_with(fields, set, &mut String::new())
}

fn subtract_with(fields: &mut Fields, set: &Set<'_>, key: &mut String) -> bool {
    let mut changed = false;
    for node in set.nodes() {
        // Fields of another shape than the object's cannot be hit.
        if fields.is_empty() {
            break;
        }
        text(key, node);
        let Some(Value::Object(found)) = fields.get_mut(key.as_str()) else { continue };
        let was_member = found.is_empty() || found.contains_key(".");
        let mut member = was_member;
        if node.member && was_member {
            found.remove(".");
            member = false;
            changed = true;
        }
        if !node.children.is_empty() && !found.is_empty() {
            changed |= subtract_with(found, &node.children, key);
        }
        let alone = found.is_empty() || (found.len() == 1 && found.contains_key("."));
        if alone && member {
            // A member that lost its children is written without the marker.
            found.clear();
        } else if alone {
            text(key, node);
            fields.remove(key.as_str());
        }
    }
    changed
}

/// Adds the members of `set`; tells whether anything changed.
pub fn unite(fields: &mut Fields, set: &Set<'_>) -> bool {
    let mut changed = false;
    for node in set.nodes() {
        let mut key = String::new();
        text(&mut key, node);
        match fields.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Value::Object(node.children.to_map(node.member)));
                changed = true;
            }
            Entry::Occupied(mut entry) => {
                let Value::Object(found) = entry.get_mut() else { continue };
                let was_member = found.is_empty() || found.contains_key(".");
                changed |= node.member && !was_member;
                changed |= unite(found, &node.children);
                if (was_member || node.member) && !found.is_empty() {
                    found.insert(".".to_owned(), Value::Object(Map::new()));
                }
            }
        }
    }
    changed
}

/// The members of `set` that are also in the stored set.
pub fn intersect<'a>(fields: &Fields, set: &Set<'a>) -> Set<'a> {
    intersect_with(fields, set, &mut String::new())
}

fn intersect_with<'a>(fields: &Fields, set: &Set<'a>, key: &mut String) -> Set<'a> {
    let mut nodes = Vec::new();
    for node in set.nodes() {
        text(key, node);
        let Some(Value::Object(found)) = fields.get(key.as_str()) else { continue };
        let member = node.member && (found.is_empty() || found.contains_key("."));
        let children = if node.children.is_empty() || found.is_empty() {
            Set::new()
        } else {
            intersect_with(found, &node.children, key)
        };
        if member || !children.is_empty() {
            nodes.push(Node { element: node.element.clone(), member, children });
        }
    }
    Set::from_nodes(nodes)
}

fn text(key: &mut String, node: &Node<'_>) {
    key.clear();
    write_element(key, &node.element);
}
