//! Columns of addresses of Services and autoscalers.

use serde_json::Value;

use super::{AGE, Columns, NAME, created, integer, name, scalar, text};
use crate::json::{at, int_at, list_at, text_at};

pub(super) fn columns(group: &str, kind: &str) -> Option<&'static Columns> {
    Some(match (group, kind) {
        ("networking.k8s.io", "ServiceCIDR") => &SERVICE_CIDR,
        ("networking.k8s.io", "IPAddress") => &IP_ADDRESS,
        ("storage.k8s.io", "VolumeAttributesClass") => &VOLUME_ATTRIBUTES,
        ("autoscaling", "HorizontalPodAutoscaler") => &AUTOSCALER,
        _ => return None,
    })
}

static SERVICE_CIDR: Columns =
    Columns::new(&[NAME, text("CIDRs", "Networks addresses are taken from."), AGE], |object, now| {
        let cidrs: Vec<&str> = list_at(object, &["spec", "cidrs"]).iter().filter_map(Value::as_str).collect();
        vec![name(object), Value::from(cidrs.join(",")), created(object, now)]
    });

static IP_ADDRESS: Columns =
    Columns::new(&[NAME, text("ParentRef", "What the address was taken for."), AGE], |object, now| {
        let parent = at(object, &["spec", "parentRef"]);
        let mut shown = text_at(parent, &["resource"]).to_owned();
        if shown.is_empty() {
            "<none>".clone_into(&mut shown);
        } else {
            for (before, field) in [('.', "group"), ('/', "namespace"), ('/', "name")] {
                let value = text_at(parent, &[field]);
                if !value.is_empty() {
                    shown.push(before);
                    shown.push_str(value);
                }
            }
        }
        vec![name(object), Value::from(shown), created(object, now)]
    });

static VOLUME_ATTRIBUTES: Columns =
    Columns::new(&[NAME, text("DriverName", "CSI driver of the class."), AGE], |object, now| {
        vec![name(object), Value::from(text_at(object, &["driverName"])), created(object, now)]
    });

static AUTOSCALER: Columns = Columns::new(
    &[
        NAME,
        text("Reference", "What is scaled."),
        text("Targets", "Measured and wanted values."),
        text("MinPods", "Replicas at least."),
        integer("MaxPods", "Replicas at most."),
        integer("Replicas", "Replicas there are."),
        AGE,
    ],
    |object, now| {
        // Both versions show the same.
        let object = &crate::autoscaling::newest(object);
        let spec = at(object, &["spec"]);
        let target = at(spec, &["scaleTargetRef"]);
        let least =
            spec["minReplicas"].as_i64().map_or_else(|| "<unset>".to_owned(), |least| least.to_string());
        vec![
            name(object),
            Value::from(format!("{}/{}", text_at(target, &["kind"]), text_at(target, &["name"]))),
            Value::from(targets(object)),
            Value::from(least),
            Value::from(int_at(spec, &["maxReplicas"])),
            Value::from(int_at(object, &["status", "currentReplicas"])),
            created(object, now),
        ]
    },
);

/// At most so many targets are shown.
const SHOWN: usize = 2;

fn targets(object: &Value) -> String {
    let metrics = list_at(object, &["spec", "metrics"]);
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let measured = list_at(object, &["status", "currentMetrics"]);
    let shown = metrics.iter().enumerate().take(SHOWN).map(|(index, metric)| {
        let source = crate::autoscaling::source(text_at(metric, &["type"]));
        let Some(source) = source else { return "<unknown type>".to_owned() };
        let (wanted, current) = (
            at(metric, &[source, "target"]),
            measured.get(index).map_or(&Value::Null, |status| at(status, &[source, "current"])),
        );
        let value = scalar;
        let unknown = || "<unknown>".to_owned();
        let average = value(&wanted["averageValue"]);
        let label = if source.ends_with("esource") {
            format!("{}: ", text_at(metric, &[source, "name"]))
        } else {
            String::new()
        };
        if let Some(average) = average {
            let suffix = if matches!(source, "external" | "object") { " (avg)" } else { "" };
            let current = value(&current["averageValue"]).unwrap_or_else(unknown);
            return format!("{label}{current}/{average}{suffix}");
        }
        if label.is_empty() {
            let current = value(&current["value"]).unwrap_or_else(unknown);
            return format!("{current}/{}", value(&wanted["value"]).unwrap_or_default());
        }
        let percent = |value: &Value| value.as_i64().map(|percent| format!("{percent}%"));
        let current = percent(&current["averageUtilization"]).unwrap_or_else(unknown);
        let wanted = percent(&wanted["averageUtilization"]).unwrap_or_else(|| "<auto>".to_owned());
        format!("{label}{current}/{wanted}")
    });
    let shown: Vec<String> = shown.collect();
    let more = metrics.len().saturating_sub(SHOWN);
    let shown = shown.join(", ");
    if more > 0 { format!("{shown} + {more} more...") } else { shown }
}
