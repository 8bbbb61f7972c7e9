//! Removing what an applier no longer states.

use serde_json::Value;

use super::{Form, Typed, compare};
use crate::fields::{Node, PathElement, Set};

/// Removes from `merged` the fields of `last` (the previous set of the applier) that nobody owns
/// any more. `managed` is everything owned now, the applier's new set included.
///
/// A field goes with all it contains: so do a list item and a map key, even if somebody changed a
/// field inside without owning the item itself. A declared struct stays as long as anything in it
/// is owned.
pub(crate) fn prune<'a>(merged: &mut Value, last: &Set<'a>, managed: &Set<'a>, typed: Typed<'a>) {
    let removals = removals(merged, last, managed, typed);
    if !removals.is_empty() {
        remove(merged, &removals, typed);
    }
}

/// The paths to remove. They borrow from `last` alone, so that the object can be changed.
fn removals<'a>(merged: &Value, last: &Set<'a>, managed: &Set<'a>, typed: Typed<'a>) -> Set<'a> {
    // Declared structs count as present by themselves: one that loses all its fields is still
    // there, empty, if somebody owns it.
    let present = named(&compare::stated(merged, typed), typed);
    let last = named(last, typed);
    let managed = named(managed, typed);
    // First without everything applied last time, then with what is owned put back.
    let remaining = present.recursive_difference(&last);
    let unowned = present.difference(&remaining.union(&managed));
    let kept = present.recursive_difference(&unowned);
    // Only what this applier stated last time may go; the rest was never its to remove.
    let removable = present.difference(&kept);
    last.common(&removable)
}

/// The set with the declared fields on the way to a member as members themselves.
fn named<'a>(set: &Set<'a>, typed: Typed<'_>) -> Set<'a> {
    let nodes = set.nodes().iter().map(|node| {
        let (declared, inner) = match &node.element {
            PathElement::Field(name) => {
                let declared = typed.declared(name);
                (declared.is_some(), declared.or_else(|| typed.undeclared()).unwrap_or(Typed::Free))
            }
            PathElement::Key(_) => (false, typed.item()),
            _ => (false, Typed::Free),
        };
        Node {
            element: node.element.clone(),
            member: node.member || (declared && !node.children.is_empty()),
            children: named(&node.children, inner),
        }
    });
    Set::from_nodes(nodes.collect())
}

/// The set with everything below an atomic value replaced by the value itself.
pub(crate) fn fold<'a>(set: &Set<'a>, typed: Typed<'_>) -> Set<'a> {
    let nodes = set.nodes().iter().map(|node| {
        let inner = match &node.element {
            PathElement::Field(name) => typed.field(name),
            PathElement::Key(_) => typed.item(),
            _ => Typed::Free,
        };
        if !node.children.is_empty() && inner.is_atomic() {
            return Node { element: node.element.clone(), member: true, children: Set::new() };
        }
        Node { element: node.element.clone(), member: node.member, children: fold(&node.children, inner) }
    });
    Set::from_nodes(nodes.collect())
}

fn remove(value: &mut Value, set: &Set<'_>, typed: Typed<'_>) {
    match typed.form(value) {
        Form::Map if !typed.atomic_map() => {
            let Value::Object(map) = value else { return };
            for node in set.nodes() {
                let PathElement::Field(name) = node.element else { continue };
                if node.member {
                    map.remove(name);
                } else if let Some(field) = map.get_mut(name) {
                    remove(field, &node.children, typed.field(name));
                }
            }
        }
        Form::List if !typed.atomic_list() => {
            let Value::Array(items) = value else { return };
            items.retain_mut(|item| {
                let below = match typed.element(item) {
                    Ok(element) => match set.get(&element) {
                        Some(node) if node.member => return false,
                        Some(node) => &node.children,
                        None => return true,
                    },
                    Err(_) => return true,
                };
                remove(item, below, typed.item());
                true
            });
        }
        _ => {}
    }
}
