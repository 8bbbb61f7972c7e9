//! Labels, annotations and selectors of a deployment's sets.

use std::collections::BTreeMap;

use remuda_names::capi::{annotation, label};

use super::{Deployment, Desired};
use crate::{
    name,
    selector::{Labels, Selector},
    template::Template,
};

/// The value that tells a new set from its siblings. It stays for the life of the set.
pub fn template_hash(template: &Template, suffix: &str) -> String {
    format!("{}-{suffix}", template.hash())
}

/// A suffix for the next set. Two attempts at the same revision of the same deployment collide.
pub fn set_suffix(deployment_uid: &str, revision: &str, template: &Template) -> String {
    name::suffix(&[deployment_uid, revision, &template.hash().to_string()])
}

/// Labels of a set. Those of its template are the same without the deployment's name, unless that has it.
pub fn set_labels(template: &Labels, deployment: &str, hash: &str) -> Labels {
    let mut labels = template_labels(template, hash);
    labels.insert(label::DEPLOYMENT_NAME.to_owned(), deployment.to_owned());
    labels
}

/// Labels of the template in a set.
pub fn template_labels(template: &Labels, hash: &str) -> Labels {
    let mut labels = template.clone();
    labels.insert(label::TEMPLATE_HASH.to_owned(), hash.to_owned());
    labels
}

/// The selector of a set: the deployment's, narrowed to this set.
pub fn set_selector(selector: &Selector, hash: &str) -> Selector {
    let mut selector = selector.clone();
    selector.labels.insert(label::TEMPLATE_HASH.to_owned(), hash.to_owned());
    selector
}

/// What is never copied from a deployment to its sets. Copying conversion data would have set and conversion
/// chase each other for ever.
const OWN: &[&str] = &[
    annotation::LAST_APPLIED,
    annotation::REVISION,
    annotation::REVISION_HISTORY,
    annotation::DESIRED_REPLICAS,
    annotation::MAX_REPLICAS,
    annotation::CONVERSION_DATA,
];

/// Annotations of a set, old or current.
pub fn set_annotations(
    own: &BTreeMap<String, String>,
    deployment: &Deployment,
    set: &Desired,
) -> BTreeMap<String, String> {
    let mut annotations: BTreeMap<String, String> = own
        .iter()
        .filter(|(key, _)| !OWN.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut put = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    put(annotation::DESIRED_REPLICAS, deployment.replicas.to_string());
    put(annotation::MAX_REPLICAS, deployment.max_replicas().to_string());
    put(annotation::DISABLE_MACHINE_CREATE, set.disable_create.to_string());
    if let Some(revision) = &set.revision {
        put(annotation::REVISION, revision.clone());
    }
    if let Some(history) = &set.revision_history {
        put(annotation::REVISION_HISTORY, history.clone());
    }
    annotations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{amount::Amount, deployment::Strategy};

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_set_carries_what_its_deployment_says_but_not_what_is_the_deployments_own() {
        let deployment = Deployment {
            replicas: 3,
            strategy: Strategy::Rolling { max_surge: Amount::Count(1), max_unavailable: Amount::Count(0) },
            paused: false,
            rollout_after: None,
            template: Template::default(),
            templates_exist: true,
        };
        let set = Desired {
            name: "s".into(),
            current: true,
            from: 0,
            replicas: 3,
            revision: Some("2".into()),
            revision_history: None,
            disable_create: false,
            notes: Vec::new(),
        };
        let own = map(&[
            ("team", "blue"),
            ("machinedeployment.clusters.x-k8s.io/revision", "1"),
            ("cluster.x-k8s.io/conversion-data", "{}"),
        ]);
        assert_eq!(
            set_annotations(&own, &deployment, &set),
            map(&[
                ("team", "blue"),
                ("machinedeployment.clusters.x-k8s.io/revision", "2"),
                ("machinedeployment.clusters.x-k8s.io/desired-replicas", "3"),
                ("machinedeployment.clusters.x-k8s.io/max-replicas", "4"),
                ("cluster.x-k8s.io/disable-machine-create", "false"),
            ])
        );
    }

    #[test]
    fn every_set_is_told_apart_by_its_hash() {
        let template = Template::default();
        let suffix = set_suffix("uid", "1", &template);
        assert_eq!(suffix, set_suffix("uid", "1", &template));
        assert_ne!(suffix, set_suffix("uid", "2", &template));
        let hash = template_hash(&template, &suffix);
        let labels = set_labels(&map(&[("a", "b")]), "md", &hash);
        assert_eq!(labels["machine-template-hash"], hash);
        assert_eq!(labels["cluster.x-k8s.io/deployment-name"], "md");
        let selector = set_selector(&Selector { labels: map(&[("a", "b")]), expressions: Vec::new() }, &hash);
        assert!(selector.matches(&template_labels(&map(&[("a", "b")]), &hash)));
        assert!(!selector.matches(&template_labels(&map(&[("a", "b")]), "1-other")));
    }
}
