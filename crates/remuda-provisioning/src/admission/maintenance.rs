//! Annotations that say when a cluster may be disturbed without being asked for it.

use remuda_distro::maintenance::Windows;
use remuda_names::provisioning::annotation::{
    MAINTENANCE_WINDOW, ROTATE_CERTIFICATES, ROTATE_CERTIFICATES_AUTO as AUTO,
};
use serde_json::Value;

use super::{Findings, Write};

pub(super) fn annotations(write: &Write<'_>, object: &Value, findings: &mut Findings) {
    let mut judge = |key: &str, wrong: &dyn Fn(&str) -> Option<String>| {
        let value = &object["metadata"]["annotations"][key];
        // What was stored before there were rules does not keep others from being written.
        if write.old.is_some_and(|old| old["metadata"]["annotations"][key] == *value) {
            return;
        }
        if let Some(why) = value.as_str().and_then(wrong) {
            findings.invalid(&format!("metadata.annotations[{key}]"), value, &why);
        }
    };
    judge(MAINTENANCE_WINDOW, &|text| Windows::parse(text).err().map(|error| error.to_string()));
    judge(ROTATE_CERTIFICATES, &|text| (text != AUTO).then(|| format!("is not {AUTO:?}")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(old: Option<&Value>, annotations: Value) -> Vec<String> {
        let object = json!({"metadata": {"annotations": annotations}});
        let write = Write { namespace: "n", name: "c", user: "u", is_server: false, old };
        let mut findings = Findings::default();
        super::annotations(&write, &object, &mut findings);
        assert!(findings.bad.is_empty());
        findings.invalid.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn windows_and_the_rotation_are_judged_when_they_are_written() {
        let window = |text: &str| json!({MAINTENANCE_WINDOW: text});
        assert!(check(None, json!({})).is_empty());
        assert!(check(None, window("Sat 01:00-05:00 Europe/Berlin; Mon-Fri 22:00-02:00")).is_empty());
        assert!(check(None, json!({ROTATE_CERTIFICATES: "auto"})).is_empty());
        let refused = check(None, window("Sat 01:00-05:00 Europe/Atlantis"));
        assert_eq!(refused.len(), 1);
        for part in
            ["metadata.annotations[remuda.io/maintenance-window]", "\"Europe/Atlantis\" is no time zone"]
        {
            assert!(refused[0].contains(part), "{refused:?}");
        }
        let refused = check(None, json!({ROTATE_CERTIFICATES: "yes", MAINTENANCE_WINDOW: ""}));
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[1].contains("metadata.annotations[remuda.io/rotate-certificates]"), "{refused:?}");
        // It is there already, and something else is written.
        let old = json!({"metadata": {"annotations": window("nights")}});
        assert!(check(Some(&old), window("nights")).is_empty());
        assert_eq!(check(Some(&old), window("days")).len(), 1);
        assert!(check(Some(&old), json!({})).is_empty(), "it can be taken off");
    }
}
