//! `remuda machine shell` and `remuda machine ssh`.

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_names::rancher::{group, secret_key, secret_type};
use remuda_plan::naming::safe_concat_name;
use serde_json::Value;

use super::{Enter, addresses, ssh};
use crate::{
    api,
    failure::{Code, Failure},
    gather::Depth,
    hooks::MachineTarget,
    object::Object,
    session::Session,
};

pub(super) async fn shell(session: &Session, arguments: Enter) -> Result<(), Failure> {
    let (target, refused) = target(session, arguments).await?;
    let shell = session.hooks.shells.iter().find(|shell| shell.serves(&target.driver));
    let code = match (shell, refused) {
        (Some(shell), _) => shell.run(target).await?,
        (None, Some(refused)) => return Err(refused),
        (None, None) => ssh::run(&target).await?,
    };
    ended(code)
}

pub(super) async fn ssh(session: &Session, arguments: Enter) -> Result<(), Failure> {
    match target(session, arguments).await? {
        (_, Some(refused)) => Err(refused),
        (target, None) => ended(ssh::run(&target).await?),
    }
}

/// Restarts the server behind a machine.
pub(super) async fn restart(session: &Session, name: String) -> Result<(), Failure> {
    let command = ["sudo", "-n", "systemctl", "--no-block", "reboot"].map(str::to_owned).to_vec();
    let (target, refused) = target(session, Enter { name: name.clone(), command }).await?;
    let shell = session.hooks.shells.iter().find(|shell| shell.serves(&target.driver));
    match (shell, refused) {
        (Some(shell), _) => shell.restart(target).await?,
        (None, Some(refused)) => return Err(refused),
        (None, None) => match ssh::run(&target).await? {
            0 => {}
            code => {
                let failure =
                    Failure::new(Code::Other, format!("machine {name} did not restart (exit code {code})"));
                return Err(failure.hint("a server that does not run is started at its provider"));
            }
        },
    }
    session.out.line(&format!("machine {name} restarts"));
    Ok(())
}

/// The exit code is that of what ran there.
fn ended(code: u8) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        code => Err(Failure::silent(Code::Command(code))),
    }
}

/// The machine, and why its SSH key may not be read, which not every way into it needs.
async fn target(session: &Session, arguments: Enter) -> Result<(MachineTarget, Option<Failure>), Failure> {
    let name = arguments.name;
    let evidence = super::existing(session, &name, Depth::Objects).await?;
    let machine = evidence.machine(&name);
    let machine =
        machine.ok_or_else(|| Failure::new(Code::NotFound, format!("there is no machine {name}")))?;
    let Some(server) = evidence.server(machine) else {
        let kind = format!("{}s.", machine.text("/spec/infrastructureRef/kind").to_lowercase());
        let denied = evidence.unreadable.values().find(|denied| denied.resource.starts_with(&kind));
        if let Some(denied) = denied {
            return Err(Failure::new(Code::Forbidden, format!("you may not {denied}")));
        }
        let failure = Failure::new(Code::NotFound, format!("machine {name} has no server yet"));
        return Err(failure.hint(format!("remuda why {name}")));
    };
    let driver = match server.group() {
        group::RKE => "custom".to_owned(),
        _ => server.kind().strip_suffix("Machine").unwrap_or(server.kind()).to_lowercase(),
    };
    let (state, refused) = match state(session, server).await {
        Ok(state) => (state, None),
        Err(refused) if refused.code == Code::Forbidden => (Vec::new(), Some(refused)),
        Err(failure) => return Err(failure),
    };
    let target = MachineTarget {
        namespace: session.namespace.clone(),
        machine: name,
        driver,
        server: server.clone(),
        addresses: addresses(machine),
        command: arguments.command,
        data_dir: session.data_dir.clone(),
        state,
    };
    Ok((target, refused))
}

/// What the driver keeps of a machine, the key among it. Not everybody may read it.
async fn state(session: &Session, server: &Object) -> Result<Vec<u8>, Failure> {
    let secrets = api::core("Secret", "secrets");
    let name = safe_concat_name(&[server.name(), "machine", "state"]);
    let found = api::get(&session.client, &secrets, Some(server.namespace()), &name).await?;
    let secret = found.filter(|secret| secret.text("/type") == secret_type::MACHINE_STATE);
    let value = secret.as_ref().and_then(|secret| secret.0.get("data")?.get(secret_key::EXTRACTED_CONFIG));
    Ok(value.and_then(Value::as_str).and_then(|text| BASE64_STANDARD.decode(text).ok()).unwrap_or_default())
}
