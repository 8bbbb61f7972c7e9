//! Columns of workloads.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    AGE, CONTAINERS, Columns, IMAGES, NAME, SELECTOR, age, boolean, created, has_condition, human_seconds,
    integer, joined, labels_text, name, selector_text, text, text_or,
};
use crate::{
    json::{at, int_at, list_at, text_at},
    meta,
};

pub(super) fn columns(group: &str, kind: &str) -> Option<&'static Columns> {
    Some(match (group, kind) {
        ("apps", "Deployment") => &DEPLOYMENT,
        ("apps", "ReplicaSet") => &REPLICA_SET,
        ("", "ReplicationController") => &REPLICATION_CONTROLLER,
        ("apps", "StatefulSet") => &STATEFUL_SET,
        ("apps", "DaemonSet") => &DAEMON_SET,
        ("apps", "ControllerRevision") => &CONTROLLER_REVISION,
        ("batch", "Job") => &JOB,
        ("batch", "CronJob") => &CRON_JOB,
        ("", "PodTemplate") => &POD_TEMPLATE,
        ("autoscaling", "Scale") => &SCALE,
        _ => return None,
    })
}

const TEMPLATE: [&str; 4] = ["spec", "template", "spec", "containers"];

fn field(containers: &[Value], field: &str) -> Value {
    Value::from(joined(containers.iter().map(|container| text_at(container, &[field])), ","))
}

fn number(object: &Value, keys: &[&str]) -> Value {
    Value::from(int_at(object, keys))
}

fn ready(object: &Value) -> Value {
    let ready = int_at(object, &["status", "readyReplicas"]);
    Value::from(format!("{ready}/{}", int_at(object, &["spec", "replicas"])))
}

static DEPLOYMENT: Columns = Columns::new(
    &[
        NAME,
        text("Ready", "Ready pods of the wanted ones."),
        text("Up-to-date", "Pods that run the newest template."),
        text("Available", "Pods that have been ready long enough."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |object, now| {
        let containers = list_at(object, &TEMPLATE);
        vec![
            name(object),
            ready(object),
            number(object, &["status", "updatedReplicas"]),
            number(object, &["status", "availableReplicas"]),
            created(object, now),
            field(containers, "name"),
            field(containers, "image"),
            selector_text(at(object, &["spec", "selector"])),
        ]
    },
);

static REPLICA_SET: Columns = Columns::new(
    &[
        NAME,
        integer("Desired", "Wanted pods."),
        integer("Current", "Existing pods."),
        integer("Ready", "Ready pods."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |object, now| replicas(object, now, selector_text(at(object, &["spec", "selector"]))),
);

static REPLICATION_CONTROLLER: Columns = Columns::new(REPLICA_SET.columns, |object, now| {
    replicas(object, now, labels_text(at(object, &["spec", "selector"])))
});

fn replicas(object: &Value, now: Timestamp, selector: Value) -> Vec<Value> {
    let containers = list_at(object, &TEMPLATE);
    vec![
        name(object),
        number(object, &["spec", "replicas"]),
        number(object, &["status", "replicas"]),
        number(object, &["status", "readyReplicas"]),
        created(object, now),
        field(containers, "name"),
        field(containers, "image"),
        selector,
    ]
}

static STATEFUL_SET: Columns = Columns::new(
    &[NAME, text("Ready", "Ready pods of the wanted ones."), AGE, CONTAINERS, IMAGES],
    |object, now| {
        let containers = list_at(object, &TEMPLATE);
        vec![
            name(object),
            ready(object),
            created(object, now),
            field(containers, "name"),
            field(containers, "image"),
        ]
    },
);

static DAEMON_SET: Columns = Columns::new(
    &[
        NAME,
        integer("Desired", "Nodes that should run a pod."),
        integer("Current", "Nodes that run at least one pod."),
        integer("Ready", "Nodes with a ready pod."),
        integer("Up-to-date", "Nodes that run the newest template."),
        integer("Available", "Nodes with a pod that has been ready long enough."),
        text("Node Selector", "Labels of the nodes to run on."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |object, now| {
        let containers = list_at(object, &TEMPLATE);
        vec![
            name(object),
            number(object, &["status", "desiredNumberScheduled"]),
            number(object, &["status", "currentNumberScheduled"]),
            number(object, &["status", "numberReady"]),
            number(object, &["status", "updatedNumberScheduled"]),
            number(object, &["status", "numberAvailable"]),
            labels_text(at(object, &["spec", "template", "spec", "nodeSelector"])),
            created(object, now),
            field(containers, "name"),
            field(containers, "image"),
            selector_text(at(object, &["spec", "selector"])),
        ]
    },
);

static CONTROLLER_REVISION: Columns = Columns::new(
    &[
        NAME,
        text("Controller", "Controller of the revision."),
        text("Revision", "Number of the revision."),
        AGE,
    ],
    |object, now| {
        let owner = meta::owner_references(object).find(|owner| owner["controller"] == Value::Bool(true));
        let owner = owner.map_or("<none>".to_owned(), |owner| {
            let kind = text_at(owner, &["kind"]).to_lowercase();
            let group =
                text_at(owner, &["apiVersion"]).split_once('/').map(|(group, _)| group.to_lowercase());
            let dot = if group.is_some() { "." } else { "" };
            format!("{kind}{dot}{}/{}", group.unwrap_or_default(), text_at(owner, &["name"]))
        });
        vec![name(object), Value::from(owner), number(object, &["revision"]), created(object, now)]
    },
);

static JOB: Columns = Columns::new(
    &[
        NAME,
        text("Status", "State of the job."),
        text("Completions", "Finished pods of the wanted ones."),
        text("Duration", "Time the job took, or has run so far."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    job,
);

fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = int_at(object, &["status", "succeeded"]);
    let parallelism = int_at(object, &["spec", "parallelism"]);
    let completions = match at(object, &["spec", "completions"]).as_i64() {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let time = |field: &str| text_at(object, &["status", field]).parse::<Timestamp>().ok();
    let duration = time("startTime").map(|start| {
        let end = time("completionTime").unwrap_or(now);
        human_seconds(end.as_second() - start.as_second())
    });
    let conditions = list_at(object, &["status", "conditions"]);
    let status = if has_condition(conditions, "Complete") {
        "Complete"
    } else if has_condition(conditions, "Failed") {
        "Failed"
    } else if meta::is_deleting(object) {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
            .into_iter()
            .find(|kind| has_condition(conditions, kind))
            .unwrap_or("Running")
    };
    let containers = list_at(object, &TEMPLATE);
    vec![
        name(object),
        Value::from(status),
        Value::from(completions),
        Value::from(duration.unwrap_or_default()),
        created(object, now),
        field(containers, "name"),
        field(containers, "image"),
        selector_text(at(object, &["spec", "selector"])),
    ]
}

static CRON_JOB: Columns = Columns::new(
    &[
        NAME,
        text("Schedule", "When jobs are started."),
        text("Timezone", "Time zone of the schedule."),
        boolean("Suspend", "Whether starting is suspended."),
        integer("Active", "Jobs that run now."),
        text("Last Schedule", "Time since a job was last started."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |object, now| {
        let containers = list_at(object, &["spec", "jobTemplate", "spec", "template", "spec", "containers"]);
        let suspend = match at(object, &["spec", "suspend"]) {
            Value::Bool(true) => "True",
            Value::Bool(false) => "False",
            _ => "<unset>",
        };
        let last = match text_at(object, &["status", "lastScheduleTime"]) {
            "" => "<none>".to_owned(),
            time => age(time, now),
        };
        vec![
            name(object),
            Value::from(text_at(object, &["spec", "schedule"])),
            text_or(at(object, &["spec", "timeZone"]), "<none>"),
            Value::from(suspend),
            Value::from(list_at(object, &["status", "active"]).len()),
            Value::from(last),
            created(object, now),
            field(containers, "name"),
            field(containers, "image"),
            selector_text(at(object, &["spec", "jobTemplate", "spec", "selector"])),
        ]
    },
);

static POD_TEMPLATE: Columns = Columns::new(
    &[
        NAME,
        text("Containers", "Names of the containers in the template."),
        text("Images", "Images of the containers in the template."),
        text("Pod Labels", "Labels of the template."),
    ],
    |object, _| {
        let containers = list_at(object, &["template", "spec", "containers"]);
        let labels = labels_text(at(object, &["template", "metadata", "labels"]));
        vec![name(object), field(containers, "name"), field(containers, "image"), labels]
    },
);

static SCALE: Columns = Columns::new(
    &[NAME, integer("Desired", "Wanted instances."), integer("Available", "Existing instances."), AGE],
    |object, now| {
        let (desired, available) =
            (number(object, &["spec", "replicas"]), number(object, &["status", "replicas"]));
        vec![name(object), desired, available, created(object, now)]
    },
);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn deployments_show_their_readiness() {
        let object = json!({"metadata": {"name": "d"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [{"name": "x", "image": "i:1"}, {"name": "y", "image": "j"}]}}}, "status": {"readyReplicas": 1}});
        let cells = DEPLOYMENT.cells(&object, NOW);
        assert_eq!(cells[1..4], [json!("1/3"), json!(0), json!(0)]);
        assert_eq!(cells[5..], [json!("x,y"), json!("i:1,j"), json!("a=b")]);
    }

    #[test]
    fn jobs_show_state_and_duration() {
        let object = json!({"spec": {"completions": 2}, "status": {"succeeded": 2, "startTime": "1969-12-31T23:50:00Z",
            "completionTime": "1969-12-31T23:51:00Z", "conditions": [{"type": "Complete", "status": "True"}]}});
        assert_eq!(job(&object, NOW)[1..4], [json!("Complete"), json!("2/2"), json!("60s")]);
        assert_eq!(
            job(&json!({"spec": {"parallelism": 4}}), NOW)[1..4],
            [json!("Running"), json!("0/1 of 4"), json!("")]
        );
    }
}
