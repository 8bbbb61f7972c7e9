//! What the pods of a Job say, where Kubernetes runs it: the Job itself only counts them.

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, LogParams},
};

use super::Machines;
use crate::{error::Error, runner::log};

/// What is asked for of a pod's log.
const KEPT: i64 = 200 << 10;

impl Machines {
    /// The newest pod's last word, if it failed; and its log is kept.
    pub(super) async fn ask_pods(&self, job: &Job) -> Result<Option<String>, Error> {
        let pods: Api<Pod> = Api::namespaced(self.ctx.client.clone(), &job.namespace().unwrap_or_default());
        let selector = format!("batch.kubernetes.io/job-name={}", job.name_any());
        let list = pods.list(&ListParams::default().labels(&selector)).await;
        let list = list.map_err(Error::api("list pods of Job", job.name_any()))?;
        let newest = list.items.into_iter().max_by_key(|pod| pod.metadata.creation_timestamp.clone());
        let Some(pod) = newest else { return Ok(None) };
        let params = LogParams { limit_bytes: Some(KEPT), ..LogParams::default() };
        if let Ok(text) = pods.logs(&pod.name_any(), &params).await {
            log::write(&self.ctx, job, &text).await?;
        }
        Ok(last_word(&pod))
    }
}

fn last_word(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_deref()?;
    let mut ended = statuses.iter().filter_map(|status| status.state.as_ref()?.terminated.as_ref());
    let failed = ended.find(|ended| ended.exit_code != 0)?;
    failed.message.clone().filter(|message| !message.is_empty()).or_else(|| failed.reason.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_word_is_that_of_the_container_that_failed() {
        let pod = |state: serde_json::Value| -> Pod {
            let status = json!({"name": "machine", "state": state, "image": "", "imageID": "", "ready": false,
                                "restartCount": 0});
            serde_json::from_value(json!({"status": {"containerStatuses": [status]}})).unwrap()
        };
        let ended = json!({"terminated": {"exitCode": 1, "message": "quota: no", "reason": "Error"}});
        assert_eq!(last_word(&pod(ended)).as_deref(), Some("quota: no"));
        let silent = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
        assert_eq!(last_word(&pod(silent)).as_deref(), Some("OOMKilled"));
        assert_eq!(last_word(&pod(json!({"terminated": {"exitCode": 0}}))), None);
        assert_eq!(last_word(&Pod::default()), None);
    }
}
