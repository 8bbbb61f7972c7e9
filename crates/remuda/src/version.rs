//! `remuda version`.

use serde_json::json;

use crate::{
    command::{Format, Version},
    failure::Failure,
    output,
};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// In the file of the program, so that others can tell what it is.
pub(crate) const MARK: &str = remuda_oci::mark!();

/// Set by whoever builds a release.
const COMMIT: Option<&str> = option_env!("REMUDA_COMMIT");

pub(crate) fn print(arguments: &Version) -> Result<(), Failure> {
    let version = VERSION;
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    match arguments.output {
        Format::Text => {
            let commit = COMMIT.map(|commit| format!(", commit {commit}")).unwrap_or_default();
            output::line(&format!("remuda {version} ({platform}{commit})"));
        }
        Format::Json => {
            let format = remuda_server::datadir::FORMAT;
            let value =
                json!({"version": version, "commit": COMMIT, "platform": platform, "dataFormat": format});
            output::line(&format!("{value:#}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_server_tells_others_the_version_of_the_program() {
        assert_eq!(remuda_server::VERSION, super::VERSION);
    }
}
