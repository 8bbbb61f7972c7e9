//! How agents are deployed.

use serde_json::Value;

use super::{Findings, is_empty};

const BUDGET: &str = "both minAvailable and maxUnavailable cannot be set to a non zero value, at least one must be \
                      omitted or set to zero";
const POLICY: &str = "Priority Class Preemption value must be 'Never', 'PreemptLowerPriority', or omitted";

pub(super) fn customizations(spec: &Value, findings: &mut Findings) {
    for agent in ["clusterAgentDeploymentCustomization", "fleetAgentDeploymentCustomization"] {
        let field = format!("spec.{agent}.schedulingCustomization");
        let scheduling = &spec[agent]["schedulingCustomization"];
        budget(&field, &scheduling["podDisruptionBudget"], findings);
        let policy = &scheduling["priorityClass"]["preemptionPolicy"];
        if !is_empty(policy) && !["Never", "PreemptLowerPriority"].iter().any(|known| policy == known) {
            findings.bad(format!("{field}.priorityClass.preemptionPolicy"), POLICY);
        }
    }
    let webhook = "webhookDeploymentCustomization";
    budget(&format!("spec.{webhook}"), &spec[webhook]["podDisruptionBudget"], findings);
}

/// Exactly one of the two bounds; the schema knows what a bound is.
fn budget(field: &str, budget: &Value, findings: &mut Findings) {
    if budget.is_null() {
        return;
    }
    let (least, most) = (&budget["minAvailable"], &budget["maxUnavailable"]);
    let counts = |bound: &Value| !is_empty(bound) && bound != "0";
    let neither = is_empty(least) && is_empty(most) || least == "0" && most == "0";
    if neither || counts(least) && counts(most) {
        findings.bad(format!("{field}.podDisruptionBudget"), BUDGET);
    }
}
