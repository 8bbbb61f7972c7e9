//! Columns of volumes, claims and quotas.

use serde_json::Value;

use super::{AGE, Columns, NAME, created, joined, name, scalar, text, text_or, wide};
use crate::{
    json::{at, list_at, map_at, text_at},
    meta,
};

pub(super) fn columns(group: &str, kind: &str) -> Option<&'static Columns> {
    Some(match (group, kind) {
        ("", "PersistentVolume") => &VOLUME,
        ("", "PersistentVolumeClaim") => &CLAIM,
        ("", "ResourceQuota") => &QUOTA,
        _ => return None,
    })
}

static VOLUME: Columns = Columns::new(
    &[
        NAME,
        text("Capacity", "Size of the volume."),
        text("Access Modes", "Ways the volume can be mounted."),
        text("Reclaim Policy", "What happens when the claim is gone."),
        text("Status", "Phase of the volume."),
        text("Claim", "Claim the volume is bound to."),
        text("StorageClass", "Storage class of the volume."),
        text("VolumeAttributesClass", "Volume attributes class of the volume."),
        text("Reason", "Why the volume is in its phase."),
        AGE,
        wide("VolumeMode", "File system or block device."),
    ],
    |object, now| {
        let spec = at(object, &["spec"]);
        let claim = at(spec, &["claimRef"]);
        let claim = if claim.is_object() {
            format!("{}/{}", text_at(claim, &["namespace"]), text_at(claim, &["name"]))
        } else {
            String::new()
        };
        vec![
            name(object),
            quantity(at(spec, &["capacity", "storage"])),
            access_modes(list_at(spec, &["accessModes"])),
            Value::from(text_at(spec, &["persistentVolumeReclaimPolicy"])),
            phase(object),
            Value::from(claim),
            storage_class(object),
            text_or(at(spec, &["volumeAttributesClassName"]), "<unset>"),
            Value::from(text_at(object, &["status", "reason"])),
            created(object, now),
            text_or(at(spec, &["volumeMode"]), "<unset>"),
        ]
    },
);

static CLAIM: Columns = Columns::new(
    &[
        NAME,
        text("Status", "Phase of the claim."),
        text("Volume", "Volume the claim is bound to."),
        text("Capacity", "Size of the bound volume."),
        text("Access Modes", "Ways the volume can be mounted."),
        text("StorageClass", "Storage class of the claim."),
        text("VolumeAttributesClass", "Volume attributes class of the claim."),
        AGE,
        wide("VolumeMode", "File system or block device."),
    ],
    |object, now| {
        let spec = at(object, &["spec"]);
        let volume = text_at(spec, &["volumeName"]);
        let (capacity, modes) = if volume.is_empty() {
            (Value::from(""), Value::from(""))
        } else {
            let status = at(object, &["status"]);
            (quantity(at(status, &["capacity", "storage"])), access_modes(list_at(status, &["accessModes"])))
        };
        vec![
            name(object),
            phase(object),
            Value::from(volume),
            capacity,
            modes,
            storage_class(object),
            text_or(at(spec, &["volumeAttributesClassName"]), "<unset>"),
            created(object, now),
            text_or(at(spec, &["volumeMode"]), "<unset>"),
        ]
    },
);

fn phase(object: &Value) -> Value {
    Value::from(if meta::is_deleting(object) { "Terminating" } else { text_at(object, &["status", "phase"]) })
}

fn storage_class(object: &Value) -> Value {
    match meta::annotation(object, "volume.beta.kubernetes.io/storage-class") {
        Some(class) => Value::from(class),
        None => Value::from(text_at(object, &["spec", "storageClassName"])),
    }
}

fn quantity(value: &Value) -> Value {
    Value::from(scalar(value).unwrap_or_else(|| "0".to_owned()))
}

fn access_modes(modes: &[Value]) -> Value {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let given = SHORT.iter().filter(|(long, _)| modes.iter().any(|mode| mode.as_str() == Some(long)));
    Value::from(joined(given.map(|(_, short)| *short), ","))
}

static QUOTA: Columns = Columns::new(
    &[NAME, text("Request", "Use and limit of requests."), text("Limit", "Use and limit of limits."), AGE],
    |object, now| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        let mut hard: Vec<_> = map_at(object, &["status", "hard"]).into_iter().flatten().collect();
        hard.sort_by_key(|(resource, _)| resource.as_str());
        for (resource, hard) in hard {
            let used = at(object, &["status", "used", resource]);
            let amount = |value: &Value| scalar(value).unwrap_or_else(|| "0".to_owned());
            let line = format!("{resource}: {}/{}", amount(used), amount(hard));
            if resource.starts_with("limits.") { limits.push(line) } else { requests.push(line) }
        }
        vec![
            name(object),
            Value::from(requests.join(", ")),
            Value::from(limits.join(", ")),
            created(object, now),
        ]
    },
);

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_and_claims_show_their_modes() {
        let volume = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "claimRef": {"namespace": "n", "name": "c"}}});
        let cells = VOLUME.cells(&volume, Timestamp::UNIX_EPOCH);
        assert_eq!(cells[1..3], [json!("1Gi"), json!("RWO,RWX")]);
        assert_eq!(cells[5], json!("n/c"));
        let claim = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Bound"}});
        assert_eq!(
            CLAIM.cells(&claim, Timestamp::UNIX_EPOCH)[1..5],
            [json!("Terminating"), json!(""), json!(""), json!("")]
        );
    }

    #[test]
    fn quotas_show_use_and_limit() {
        let quota = json!({"status": {"hard": {"pods": "4", "limits.cpu": 2}, "used": {"pods": "1"}}});
        assert_eq!(
            QUOTA.cells(&quota, Timestamp::UNIX_EPOCH)[1..3],
            [json!("pods: 1/4"), json!("limits.cpu: 0/2")]
        );
    }
}
