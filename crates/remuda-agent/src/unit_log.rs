//! The last words of a service that did not start.
//!
//! Installers end with `systemctl`, which says which service failed and leaves why to its log. That is on the machine,
//! and who looks at the plan is not.

use std::{process::Stdio, time::Duration};

use tokio::{process::Command, time::timeout};

use crate::environment::Environment;

/// Enough for the error and what systemd says around it.
const LINES: &str = "8";
const LIMIT: usize = 2048;
const PATIENCE: Duration = Duration::from_secs(5);
const SUFFIX: &str = ".service";

/// The service that `systemctl` names in what it wrote.
fn named(text: &str) -> Option<&str> {
    let part = |letter: char| letter.is_ascii_alphanumeric() || "@_.-:".contains(letter);
    let mut words = text.split(|letter: char| !part(letter));
    words.find_map(|word| {
        let unit = word.trim_end_matches(['.', ':']);
        let name = unit.strip_suffix(SUFFIX)?;
        // A leading dash would be an option of what is called with it.
        (!name.is_empty() && !name.starts_with('-')).then_some(unit)
    })
}

/// The end of the log of the service that a failed command named, if it named one and there is a log.
pub(crate) async fn of_failed(text: &str, environment: &Environment) -> Option<String> {
    let unit = named(text)?;
    let mut command = Command::new("journalctl");
    command.args(["--no-pager", "-o", "cat", "-n", LINES, "-u", unit]);
    command.env_clear().envs(environment.iter()).stdin(Stdio::null()).stderr(Stdio::null());
    let output = timeout(PATIENCE, command.kill_on_drop(true).output()).await.ok()?.ok()?;
    let said = output.stdout;
    let said = String::from_utf8_lossy(&said[said.len().saturating_sub(LIMIT)..]).trim().to_owned();
    (output.status.success() && !said.is_empty()).then(|| format!("log of {unit}, last lines:\n{said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_is_the_one_that_systemctl_names() {
        let job = "Job for k3s-agent.service failed because the control process exited with error code.\nSee \
                   \"systemctl status k3s-agent.service\" and \"journalctl -xeu k3s-agent.service\" for details.";
        assert_eq!(named(job), Some("k3s-agent.service"));
        assert_eq!(named("Failed to start web@1.service."), Some("web@1.service"));
        assert_eq!(named("see /etc/systemd/system/k3s.service: no"), Some("k3s.service"));
        for none in ["", "no space left on device", ".service", "-u.service", "service"] {
            assert_eq!(named(none), None, "{none}");
        }
    }
}
