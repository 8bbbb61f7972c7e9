//! `remuda machine delete`.

use std::time::Duration;

use clap::Args;
use remuda_names::{capi, rancher::label};
use tokio::time::Instant;

use super::existing;
use crate::{
    age, api,
    confirm::confirm,
    failure::{Code, Failure},
    follow::interruptible,
    gather::Depth,
    object::Object,
    session::Session,
};

#[derive(Args, Debug)]
pub struct DeleteMachine {
    /// Names of machines
    #[arg(required = true, value_name = "MACHINE")]
    pub names: Vec<String>,

    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,

    /// Wait until they are gone
    #[arg(long)]
    pub wait: bool,

    /// Give up waiting after this time
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = age::parse)]
    pub timeout: Duration,
}

/// How often it is looked whether machines are gone.
const PAUSE: Duration = Duration::from_millis(400);

pub(super) async fn run(session: &Session, arguments: DeleteMachine) -> Result<(), Failure> {
    let mut machines = Vec::new();
    for name in &arguments.names {
        let evidence = existing(session, name, Depth::Objects).await?;
        machines.extend(evidence.machine(name).cloned());
    }
    let what: Vec<String> = machines.iter().map(described).collect();
    confirm(&format!("deletes {}", what.join(", ")), arguments.yes)?;
    for machine in &machines {
        let resource = api::capi("Machine");
        api::delete(&session.client, &resource, Some(&session.namespace), machine.name(), false).await?;
        session.out.line(&format!("machine {} is being deleted{}", machine.name(), replaced(machine)));
    }
    if arguments.wait {
        interruptible(gone(session, &machines, arguments.timeout)).await?;
    }
    Ok(())
}

fn described(machine: &Object) -> String {
    format!("machine {} of cluster {}", machine.name(), machine.label(capi::label::CLUSTER_NAME))
}

/// Who wants fewer machines has to say so elsewhere.
fn replaced(machine: &Object) -> String {
    match (machine.owner("MachineSet"), machine.label(label::MACHINE_POOL_NAME)) {
        (None, _) => String::new(),
        (Some(_), "") => "; another takes its place".to_owned(),
        (Some(_), pool) => format!("; pool {pool} makes another (remuda cluster scale makes it smaller)"),
    }
}

async fn gone(session: &Session, machines: &[Object], timeout: Duration) -> Result<(), Failure> {
    let began = Instant::now();
    for machine in machines {
        let name = machine.name();
        loop {
            let found =
                api::get(&session.client, &api::capi("Machine"), Some(&session.namespace), name).await?;
            // Another of the same name is another one.
            if found.is_none_or(|found| found.uid() != machine.uid()) {
                break;
            }
            if began.elapsed() > timeout {
                let failure = Failure::new(Code::TimedOut, format!("machine {name} is not gone yet"));
                return Err(failure.hint(format!("remuda why {name}")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}
