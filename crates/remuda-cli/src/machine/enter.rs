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
    let target = target(session, arguments).await?;
    let shell = session.hooks.shells.iter().find(|shell| shell.serves(&target.driver));
    let code = match shell {
        Some(shell) => shell.run(target).await?,
        None => ssh::run(&target).await?,
    };
    ended(code)
}

pub(super) async fn ssh(session: &Session, arguments: Enter) -> Result<(), Failure> {
    let target = target(session, arguments).await?;
    ended(ssh::run(&target).await?)
}

/// The exit code is that of what ran there.
fn ended(code: u8) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        code => Err(Failure::silent(Code::Command(code))),
    }
}

async fn target(session: &Session, arguments: Enter) -> Result<MachineTarget, Failure> {
    let name = arguments.name;
    let evidence = super::existing(session, &name, Depth::Objects).await?;
    let machine = evidence.machine(&name);
    let machine =
        machine.ok_or_else(|| Failure::new(Code::NotFound, format!("there is no machine {name}")))?;
    let Some(server) = evidence.server(machine) else {
        let failure = Failure::new(Code::NotFound, format!("machine {name} has no server yet"));
        return Err(failure.hint(format!("remuda why {name}")));
    };
    let driver = match server.group() {
        group::RKE => "custom".to_owned(),
        _ => server.kind().strip_suffix("Machine").unwrap_or(server.kind()).to_lowercase(),
    };
    Ok(MachineTarget {
        namespace: session.namespace.clone(),
        machine: name,
        driver,
        server: server.clone(),
        addresses: addresses(machine),
        command: arguments.command,
        data_dir: session.data_dir.clone(),
        state: state(session, server).await?,
    })
}

/// What the driver keeps of a machine. Not everybody may read it.
async fn state(session: &Session, server: &Object) -> Result<Vec<u8>, Failure> {
    let secrets = api::core("Secret", "secrets");
    let name = safe_concat_name(&[server.name(), "machine", "state"]);
    let found = match api::get(&session.client, &secrets, Some(server.namespace()), &name).await {
        Ok(found) => found,
        Err(failure) if failure.code == Code::Forbidden => None,
        Err(failure) => return Err(failure),
    };
    let secret = found.filter(|secret| secret.text("/type") == secret_type::MACHINE_STATE);
    let value = secret.as_ref().and_then(|secret| secret.0.get("data")?.get(secret_key::EXTRACTED_CONFIG));
    Ok(value.and_then(Value::as_str).and_then(|text| BASE64_STANDARD.decode(text).ok()).unwrap_or_default())
}
