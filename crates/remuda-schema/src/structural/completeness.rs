//! Completeness: what a junctor talks about must be declared outside of it.
//!
//! The reference follows the junctors of the root only, not those of properties; so do we, because
//! definitions in use rely on it.

use crate::{error::FieldError, props::Props};

pub(super) fn check(props: &Props, path: &str, errors: &mut Vec<FieldError>) {
    junctors(props, Some(props), path, path, errors);
}

fn junctors(
    values: &Props,
    structure: Option<&Props>,
    structure_path: &str,
    values_path: &str,
    errors: &mut Vec<FieldError>,
) {
    if let Some(child) = &values.not {
        nested(child, structure, structure_path, &format!("{values_path}.not"), errors);
    }
    for (name, list) in [("allOf", &values.all_of), ("anyOf", &values.any_of), ("oneOf", &values.one_of)] {
        for (index, child) in list.iter().enumerate() {
            nested(child, structure, structure_path, &format!("{values_path}.{name}[{index}]"), errors);
        }
    }
}

fn nested(
    values: &Props,
    structure: Option<&Props>,
    structure_path: &str,
    values_path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(node) = structure else {
        let detail = format!("because it is defined in {values_path}");
        errors.push(FieldError::required(structure_path, &detail));
        return;
    };
    junctors(values, structure, structure_path, values_path, errors);
    if let Some(item) = values.item() {
        let (structure_path, values_path) =
            (format!("{structure_path}.items"), format!("{values_path}.items"));
        nested(item, node.item(), &structure_path, &values_path, errors);
    }
    for (name, child) in &values.properties {
        let structure_path = format!("{structure_path}.properties[{name}]");
        let values_path = format!("{values_path}.properties[{name}]");
        nested(child, node.properties.get(name), &structure_path, &values_path, errors);
    }
}
