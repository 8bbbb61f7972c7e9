//! The tables know every field of both schemas.

use serde_json::Value;

use super::{
    HUB, SPOKE,
    codec::{Codec, Field},
    tables,
};
use crate::crd;

/// One side of a table.
type Side = fn(&Field) -> &'static str;

/// Fields of a schema that no entry of the table converts.
fn missed(fields: &[Field], side: Side, path: &str, schema: &Value, found: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let below = format!("{path}.");
        if let Some(field) = fields.iter().find(|field| side(field) == path) {
            if let Codec::Each(inner) = field.codec {
                let mut within = Vec::new();
                missed(inner, side, "", &property["items"], &mut within);
                found.extend(within.into_iter().map(|name| format!("{path}[].{name}")));
            }
        } else if fields.iter().any(|field| side(field).starts_with(&below)) {
            missed(fields, side, &path, property, found);
        } else {
            found.push(path);
        }
    }
}

fn unknown(version: &str, side: Side) -> String {
    let mut lines = Vec::new();
    for crd in crd::all() {
        let Some(table) = crd["metadata"]["name"].as_str().and_then(tables::of) else { continue };
        let versions = crd["spec"]["versions"].as_array().unwrap();
        let version = versions.iter().find(|known| known["name"] == version).unwrap();
        let mut found = Vec::new();
        missed(&table.fields(), side, "", &version["schema"]["openAPIV3Schema"], &mut found);
        found.retain(|path| !["apiVersion", "kind", "metadata"].contains(&path.as_str()));
        lines.extend(
            found
                .into_iter()
                .map(|path| format!("{} {path}", crd["spec"]["names"]["kind"].as_str().unwrap())),
        );
    }
    lines.join("\n")
}

#[test]
fn only_what_the_old_version_has_no_place_for_travels_in_the_annotation() {
    assert_eq!(unknown(HUB, |field| field.hub), "Machine spec.minReadySeconds\nMachine status.failureDomain");
}

#[test]
fn only_what_the_new_version_has_given_up_is_lost() {
    assert_eq!(
        unknown(SPOKE, |field| field.spoke),
        "Cluster spec.topology.rolloutAfter\n\
         MachineDeployment spec.progressDeadlineSeconds\n\
         MachineDeployment spec.revisionHistoryLimit"
    );
}
