//! How a command fails: one line, perhaps a hint, and an exit code; see [`Code`].

pub(crate) use remuda_base::chain::one_line as chain;
use std::{error::Error, process::ExitCode};

use remuda_cli::Code;
use remuda_server::config::ConfigError;

use crate::{log, output};

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) code: Code,
}

impl Failure {
    pub(crate) fn new(error: &dyn Error, hint: Option<String>) -> Failure {
        Failure { message: chain(error), hint, code: Code::Other }
    }

    /// What was asked for makes no sense.
    pub(crate) fn usage(message: impl Into<String>, hint: Option<String>) -> Failure {
        Failure { message: message.into(), hint, code: Code::Invalid }
    }

    pub(crate) fn report(&self) -> ExitCode {
        let code = ExitCode::from(self.code.number());
        if log::json::is_on() {
            tracing::error!(hint = self.hint, "{}", self.message);
            return code;
        }
        output::note(&format!("error: {}", self.message));
        if let Some(hint) = &self.hint {
            output::note(&format!("hint: {hint}"));
        }
        code
    }
}

impl Failure {
    /// With the server it is about, and where that is known from.
    pub(crate) fn at(self, server: &impl std::fmt::Display) -> Failure {
        Failure { message: format!("{}\nserver: {server}", self.message), ..self }
    }
}

impl From<remuda_cli::Failure> for Failure {
    fn from(failure: remuda_cli::Failure) -> Failure {
        let remuda_cli::Failure { message, hint, server, code, .. } = failure;
        let failure = Failure { message, hint, code };
        match server {
            Some(server) => failure.at(&server),
            None => failure,
        }
    }
}

impl From<ConfigError> for Failure {
    /// Flags, variables and the file of a server are part of the command line.
    fn from(error: ConfigError) -> Failure {
        Failure::usage(chain(&error), error.hint())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure { message: format!("{error:#}"), hint: None, code: Code::Other }
    }
}
