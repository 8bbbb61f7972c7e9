//! Environment of agents.

use remuda_names::rancher::env::NO_PROXY;
use serde_json::Value;

use super::{Findings, list};

const SPACES: &str = "Malformed NO_PROXY environment variable value format: detected whitespace in value. Value must be \
                      a comma-delimited string with no spaces containing one or more IP address prefixes (1.2.3.4, \
                      1.2.3.4:80), IP address prefixes in CIDR notation (1.2.3.4/8), domain names, or special DNS \
                      labels (*)";

/// Place and value of the first variable of a name.
pub(super) fn find(spec: &Value, is: impl Fn(&str) -> bool) -> Option<(usize, &str)> {
    let mut variables = list(&spec["agentEnvVars"]).enumerate();
    let (place, variable) = variables.find(|(_, variable)| variable["name"].as_str().is_some_and(&is))?;
    Some((place, variable["value"].as_str().unwrap_or_default()))
}

/// Spaces were accepted once; clusters that have them keep them.
pub(super) fn no_proxy(old: Option<&Value>, spec: &Value, findings: &mut Findings) {
    let spaced = |spec: &Value| {
        let variable = find(spec, |name| name.eq_ignore_ascii_case(NO_PROXY));
        variable.filter(|(_, value)| value.contains(' ')).map(|(place, _)| place)
    };
    if let Some(place) = spaced(spec).filter(|_| old.is_none_or(|old| spaced(old).is_none())) {
        findings.bad(format!("spec.agentEnvVars[{place}].value"), SPACES);
    }
}
