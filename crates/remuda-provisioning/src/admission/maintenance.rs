//! Annotations that say when a cluster may be disturbed without being asked for it.

use jiff::Timestamp;
use remuda_distro::maintenance::Windows;
use remuda_names::{
    driver::facts,
    provisioning::annotation::{
        EXPIRES, HIBERNATE, HIBERNATE_SCHEDULE, HIBERNATE_WITHOUT_SNAPSHOT, MAINTENANCE_WINDOW,
        ROTATE_CERTIFICATES, ROTATE_CERTIFICATES_AUTO as AUTO, WAKE, WAKE_SCHEDULE,
    },
};
use serde_json::Value;

use super::{Findings, Write, pools};
use crate::schedule::Schedule;

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
    let time = |text: &str| {
        let wrong = text.parse::<Timestamp>().is_err();
        wrong.then(|| "is no time, such as 2026-12-24T18:00:00Z".to_owned())
    };
    let stays = unstoppable(object);
    for key in [HIBERNATE, HIBERNATE_SCHEDULE] {
        judge(key, &|text| {
            let wrong = if key == HIBERNATE { time(text) } else { Schedule::parse(text).err() };
            wrong.or_else(|| stays.clone())
        });
    }
    judge(WAKE, &time);
    judge(WAKE_SCHEDULE, &|text| Schedule::parse(text).err());
    judge(EXPIRES, &time);
    judge(HIBERNATE_WITHOUT_SNAPSHOT, &|text| {
        let known = text == "true" || text == "false" || time(text).is_none();
        (!known).then(|| "must be true, false, or the time of the request it is about".to_owned())
    });
}

/// Why the machines of a cluster cannot be stopped and started again.
fn unstoppable(object: &Value) -> Option<String> {
    let config = &object["spec"]["rkeConfig"];
    if config.is_null() {
        return Some("the cluster was imported: its servers are stopped where they were made".to_owned());
    }
    if pools::of(object).next().is_none() {
        return Some(
            "the cluster has no pools: servers that registered themselves have no driver".to_owned(),
        );
    }
    pools::of(object).find_map(|pool| {
        let name = pool["name"].as_str().unwrap_or_default();
        let kind = pool["machineConfigRef"]["kind"].as_str().unwrap_or_default();
        match kind.strip_suffix("Config").map(str::to_lowercase) {
            None => Some(format!("machines of pool {name} are of another provider")),
            Some(driver) if !facts(&driver).power => {
                Some(format!("driver {driver} of pool {name} cannot stop and start servers"))
            }
            Some(_) => None,
        }
    })
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

    fn of_pool(kind: &str, annotations: Value) -> Vec<String> {
        let object = json!({
            "metadata": {"annotations": annotations},
            "spec": {"rkeConfig": {"machinePools": [{"name": "a", "machineConfigRef": {"kind": kind}}]}},
        });
        let write = Write { namespace: "n", name: "c", user: "u", is_server: false, old: None };
        let mut findings = Findings::default();
        super::annotations(&write, &object, &mut findings);
        findings.invalid.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn clusters_are_stopped_where_drivers_can() {
        let asked = || json!({HIBERNATE: "2026-01-01T00:00:00Z"});
        assert!(of_pool("LocalConfig", asked()).is_empty());
        assert!(
            of_pool("Amazonec2Config", json!({HIBERNATE_SCHEDULE: "0 20 * * 1-5 Europe/Berlin"})).is_empty()
        );
        for (kind, why) in
            [("GenericConfig", "driver generic of pool a cannot stop"), ("", "of another provider")]
        {
            let refused = of_pool(kind, asked());
            assert!(refused[0].contains(why) && refused[0].contains("remuda.io/hibernate"), "{refused:?}");
        }
        assert!(check(None, asked())[0].contains("was imported"));
        let custom = json!({"metadata": {"annotations": asked()}, "spec": {"rkeConfig": {}}});
        assert!(unstoppable(&custom).unwrap().contains("registered themselves"));
        assert!(
            of_pool("LocalConfig", json!({HIBERNATE_WITHOUT_SNAPSHOT: "2026-01-01T00:00:00Z"})).is_empty()
        );
        for wrong in [
            json!({HIBERNATE: "now"}),
            json!({WAKE: "tomorrow"}),
            json!({HIBERNATE_SCHEDULE: "0 25 * * *"}),
            json!({WAKE_SCHEDULE: "0 6 * * * Europe/Atlantis"}),
            json!({EXPIRES: "in a week"}),
            json!({HIBERNATE_WITHOUT_SNAPSHOT: "yes"}),
        ] {
            assert_eq!(of_pool("LocalConfig", wrong.clone()).len(), 1, "{wrong}");
        }
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
