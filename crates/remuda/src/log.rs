//! Logging: to standard error, as text for people or as JSON lines for machines.

pub(crate) mod json;

use std::io::IsTerminal;

use remuda_server::config::{LogFormat, Logging};
use tracing_subscriber::{EnvFilter, fmt::format::JsonFields};

use crate::failure::Failure;

/// What libraries below say at these levels is about the network, not about us.
const QUIET: &str = "hyper=warn,h2=warn,rustls=warn,tokio_rustls=warn,tonic=warn,tower=warn,kube_client=off";

pub(crate) fn init(logging: &Logging) -> Result<(), Failure> {
    let filter = filter(&logging.level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match logging.format {
        LogFormat::Json => {
            builder.fmt_fields(JsonFields::new()).event_format(json::Lines).init();
            json::take_over();
        }
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
    }
    Ok(())
}

/// As services do that log for whoever started them.
pub(crate) fn plain(level: tracing::Level) {
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    builder.with_ansi(false).with_target(false).init();
}

fn filter(level: &str) -> Result<EnvFilter, Failure> {
    let invalid = |reason: String| {
        let hint = "use error, warn, info, debug, trace, or a filter such as info,remuda_store=debug";
        Failure::usage(format!("invalid --log-level: {reason}"), Some(hint.to_owned()))
    };
    let first = level.split(',').next().unwrap_or_default();
    let known =
        ["off", "error", "warn", "info", "debug", "trace"].contains(&first.to_ascii_lowercase().as_str());
    if !known && !first.contains('=') {
        return Err(invalid(format!("{first:?} is not a level")));
    }
    // What was asked for comes last and wins.
    EnvFilter::try_new(format!("{QUIET},{level}")).map_err(|error| invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters_are_accepted_and_anything_else_is_not() {
        for good in ["info", "DEBUG", "info,remuda_store=debug", "remuda_server=trace"] {
            filter(good).unwrap();
        }
        for bad in ["loud", "", "info,remuda=loud"] {
            assert!(filter(bad).unwrap_err().message.starts_with("invalid --log-level"), "{bad}");
        }
    }
}
