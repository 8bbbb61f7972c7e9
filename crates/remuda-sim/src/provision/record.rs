//! What a driver keeps of a machine, as it is in the machine-state Secret.

use std::{collections::BTreeMap, io};

use flate2::{Compression, GzBuilder};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{ResourceExt, core::DynamicObject};
use remuda_names::rancher::{label, secret_key, secret_type};
use serde_json::json;

use super::kinds::DRIVER;

/// The Secret of a machine at that address.
pub(super) fn secret(machine: &DynamicObject, address: &str) -> io::Result<Secret> {
    let mut secret = Secret { type_: Some(secret_type::MACHINE_STATE.to_owned()), ..Secret::default() };
    secret.metadata.name = Some(name(&machine.name_any()));
    secret.metadata.namespace = machine.namespace();
    let known = [label::CLUSTER_NAME, label::CAPI_MACHINE_NAME];
    let mut labels: BTreeMap<String, String> = machine
        .labels()
        .iter()
        .filter(|(key, _)| known.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    labels.insert(label::BACKUP.to_owned(), "true".to_owned());
    secret.metadata.labels = Some(labels);
    let archive = archive(&machine.name_any(), address)?;
    secret.data = Some(BTreeMap::from([(secret_key::EXTRACTED_CONFIG.to_owned(), ByteString(archive))]));
    Ok(secret)
}

/// Names of machines leave room for this.
pub(super) fn name(machine: &str) -> String {
    format!("{machine}-machine-state")
}

fn archive(machine: &str, address: &str) -> io::Result<Vec<u8>> {
    let config = json!({
        "ConfigVersion": 3,
        "Name": machine,
        "DriverName": DRIVER,
        "Driver": {"MachineName": machine, "IPAddress": address, "PrivateIPAddress": address},
    });
    let config = config.to_string().into_bytes();
    // No time and no owner: equal machines give equal bytes.
    let packed = GzBuilder::new().write(Vec::new(), Compression::fast());
    let mut archive = tar::Builder::new(packed);
    let mut header = tar::Header::new_gnu();
    header.set_size(config.len() as u64);
    header.set_mode(0o600);
    header.set_entry_type(tar::EntryType::Regular);
    let path = format!("management-state/node/nodes/{machine}/machines/{machine}/config.json");
    archive.append_data(&mut header, path, config.as_slice())?;
    archive.into_inner()?.finish()
}
