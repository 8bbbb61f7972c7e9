//! The command line of a machine's job, as Rancher writes it.

use std::path::PathBuf;

/// What a job is to do. `parse` reads it from the arguments after `machine`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// Where the driver's program is; empty for one that is built in.
    pub driver_url: String,
    /// Checksum of what is downloaded.
    pub driver_hash: String,
    /// The Secret with the state of the machine.
    pub secret_namespace: String,
    pub secret_name: String,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Create(Create),
    Remove {
        /// The machine, as the driver knows it.
        name: String,
    },
    /// Restarts the server.
    Restart {
        /// The machine, as the driver knows it.
        name: String,
    },
    /// Stops the server, or starts it.
    Power {
        /// The machine, as the driver knows it.
        name: String,
        on: bool,
    },
    /// Says which flags a driver has. It is about no machine.
    Flags {
        driver: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Create {
    pub driver: String,
    /// File with the script the machine is to run at its first start.
    pub install_script: Option<PathBuf>,
    /// Host name, if it is not the machine's name.
    pub hostname: Option<String>,
    /// Flags of the driver, without the dashes; `None` for those without a value.
    pub flags: Vec<(String, Option<String>)>,
    /// The machine, as the driver knows it.
    pub name: String,
}

/// Why a command line is not one of a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("expected create, rm, restart, start, stop or flags after the options")]
    NoAction,
    #[error("unknown option {0:?}")]
    Unknown(String),
    #[error("{0} is missing")]
    Missing(&'static str),
}

impl Args {
    /// Reads a command line. Options and values are one argument each, as `--option=value`.
    pub fn parse<S: Into<String>>(arguments: impl IntoIterator<Item = S>) -> Result<Self, Wrong> {
        let mut arguments = arguments.into_iter().map(Into::into);
        let (mut url, mut hash) = (String::new(), String::new());
        let (mut namespace, mut secret) = ("default".to_owned(), String::new());
        let action = loop {
            let argument: String = arguments.next().ok_or(Wrong::NoAction)?;
            let (option, value) = argument.split_once('=').unwrap_or((&argument, ""));
            match option {
                "--driver-download-url" => value.clone_into(&mut url),
                "--driver-hash" => value.clone_into(&mut hash),
                "--secret-namespace" => value.clone_into(&mut namespace),
                "--secret-name" => value.clone_into(&mut secret),
                "create" => break Action::Create(create(arguments)?),
                "rm" => break Action::Remove { name: named(arguments)? },
                "restart" => break Action::Restart { name: named(arguments)? },
                "start" => break Action::Power { name: named(arguments)?, on: true },
                "stop" => break Action::Power { name: named(arguments)?, on: false },
                "flags" => {
                    let driver = arguments.next().ok_or(Wrong::Missing("the name of the driver"))?;
                    break Action::Flags { driver };
                }
                _ if option.starts_with('-') => return Err(Wrong::Unknown(option.to_owned())),
                _ => return Err(Wrong::NoAction),
            }
        };
        if secret.is_empty() && !matches!(action, Action::Flags { .. }) {
            return Err(Wrong::Missing("--secret-name"));
        }
        Ok(Self {
            driver_url: url,
            driver_hash: hash,
            secret_namespace: namespace,
            secret_name: secret,
            action,
        })
    }

    /// The machine, as the driver knows it.
    pub fn machine(&self) -> &str {
        match &self.action {
            Action::Create(create) => &create.name,
            Action::Remove { name } | Action::Restart { name } | Action::Power { name, .. } => name,
            Action::Flags { .. } => "",
        }
    }
}

fn create(arguments: impl Iterator<Item = String>) -> Result<Create, Wrong> {
    let mut create = Create::default();
    for argument in arguments {
        let Some(option) = argument.strip_prefix("--") else {
            create.name = argument;
            continue;
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (option, None),
        };
        match name {
            "driver" => create.driver = value.unwrap_or_default(),
            "custom-install-script" => create.install_script = value.map(PathBuf::from),
            "hostname-override" => create.hostname = value,
            _ => create.flags.push((name.to_owned(), value)),
        }
    }
    if create.driver.is_empty() {
        return Err(Wrong::Missing("--driver"));
    }
    if create.name.is_empty() {
        return Err(Wrong::Missing("the name of the machine"));
    }
    Ok(create)
}

/// The machine that is meant.
fn named(arguments: impl Iterator<Item = String>) -> Result<String, Wrong> {
    let mut machine = None;
    for argument in arguments {
        match argument.as_str() {
            "-y" | "-f" | "--update-config" => {}
            other if other.starts_with('-') => return Err(Wrong::Unknown(other.to_owned())),
            _ => machine = Some(argument),
        }
    }
    machine.ok_or(Wrong::Missing("the name of the machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_of_a_creation_is_read() {
        let line = "--driver-download-url= --driver-hash= --secret-namespace=fleet-default \
                    --secret-name=x-machine-state create --driver=digitalocean \
                    --custom-install-script=/run/secrets/machine/value --digitalocean-image=ubuntu \
                    --digitalocean-private-networking --digitalocean-tags=a=b x";
        let args = Args::parse(line.split_whitespace()).unwrap();
        assert_eq!((args.secret_namespace.as_str(), args.machine()), ("fleet-default", "x"));
        let Action::Create(create) = args.action else { panic!() };
        assert_eq!(create.install_script.unwrap().to_str(), Some("/run/secrets/machine/value"));
        assert_eq!(
            create.flags,
            [
                ("digitalocean-image".to_owned(), Some("ubuntu".to_owned())),
                ("digitalocean-private-networking".to_owned(), None),
                ("digitalocean-tags".to_owned(), Some("a=b".to_owned())),
            ]
        );
    }

    #[test]
    fn the_command_line_of_a_removal_is_read() {
        let line = ["--secret-name=s", "rm", "-y", "--update-config", "x"];
        assert_eq!(Args::parse(line).unwrap().action, Action::Remove { name: "x".into() });
    }

    #[test]
    fn servers_are_stopped_and_started_by_name() {
        let action = |verb: &str| Args::parse(["--secret-name=s", verb, "x"]).unwrap().action;
        assert_eq!(action("stop"), Action::Power { name: "x".into(), on: false });
        assert_eq!(action("start"), Action::Power { name: "x".into(), on: true });
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(Args::parse(["--secret-name=s"]), Err(Wrong::NoAction));
        assert_eq!(Args::parse(["rm", "-y", "x"]), Err(Wrong::Missing("--secret-name")));
        assert_eq!(
            Args::parse(["--secret-name=s", "create", "--driver=x"]),
            Err(Wrong::Missing("the name of the machine"))
        );
        assert_eq!(Args::parse(["--bogus", "rm"]), Err(Wrong::Unknown("--bogus".into())));
    }
}
