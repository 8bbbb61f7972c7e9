//! The process of a machine's job, as tests run it: `machine machine …`. `REMUDA_DIGITALOCEAN_URL` points it at a
//! fake cloud, which it asks more often than a real one.

use std::{process::ExitCode, sync::Arc, time::Duration};

use remuda_drivers::{
    builtin::{Context, Registry},
    digitalocean::DigitalOcean,
    http::Pace,
    plugin::serve_builtin,
};
use remuda_machines::job;

fn main() -> ExitCode {
    let mut drivers = Registry::standard();
    if let Some(url) = std::env::var_os("REMUDA_DIGITALOCEAN_URL") {
        let url = url.to_string_lossy().into_owned();
        drivers = drivers.with("digitalocean", true, move |context| {
            let fast = Duration::from_millis(50);
            let pace = Pace { retry: fast, poll: fast, settle: fast, ..Pace::default() };
            Arc::new(DigitalOcean::new(Context { digitalocean: url.clone(), pace, ..context }))
        });
    }
    if std::env::var_os("MACHINE_PLUGIN_TOKEN").is_some() {
        return serve_builtin(&drivers, "");
    }
    let mut environment = job::Environment::from_env();
    environment.pace.poll = Duration::from_millis(50);
    job::main_with(std::env::args().skip(2), &drivers, environment)
}
