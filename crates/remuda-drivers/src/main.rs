//! The built-in drivers as a plugin: `MACHINE_PLUGIN_DRIVER_NAME` says which. Linked or copied to
//! `docker-machine-driver-<name>` it serves that one to docker-machine or rancher-machine.

use std::{process::ExitCode, sync::Arc};

use remuda_drivers::{
    builtin::{self, Context},
    log::Log,
    plugin::serve::{Handshake, ParentLog, explain, run},
};

fn main() -> ExitCode {
    let program = std::env::args().next().unwrap_or_default();
    let handshake = Handshake::from_env();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (true, Ok(runtime)) = (handshake.is_plugin, runtime) else { return explain(&program) };
    let mut context = Context::new(Log::new(Arc::new(ParentLog)));
    if let Some(url) = std::env::var_os("REMUDA_DIGITALOCEAN_URL") {
        context.digitalocean = url.to_string_lossy().into_owned();
    }
    let Some(driver) = builtin::open(&handshake.driver, context) else { return explain(&program) };
    runtime.block_on(run(driver))
}
