//! The process of a machine's job, as tests run it: `machine machine …`. `REMUDA_DIGITALOCEAN_URL` points it at a
//! fake cloud, which it asks more often than a real one.

use std::{process::ExitCode, sync::Arc, time::Duration};

use remuda_drivers::{
    amazonec2::AmazonEc2,
    builtin::{Context, Registry},
    digitalocean::DigitalOcean,
    http::Pace,
    plugin::serve_builtin,
};
use remuda_machines::job;

fn main() -> ExitCode {
    let url = std::env::var_os("REMUDA_DIGITALOCEAN_URL").map(|url| url.to_string_lossy().into_owned());
    let drivers = Registry::standard()
        .with("digitalocean", true, move |context| {
            let digitalocean = url.clone().unwrap_or_else(|| context.digitalocean.clone());
            Arc::new(DigitalOcean::new(Context { digitalocean, ..fast(context) }))
        })
        .with("amazonec2", true, |context| Arc::new(AmazonEc2::new(fast(context))));
    if std::env::var_os("MACHINE_PLUGIN_TOKEN").is_some() {
        return serve_builtin(&drivers, "");
    }
    let mut environment = job::Environment::from_env();
    environment.pace.poll = Duration::from_millis(50);
    job::main_with(std::env::args().skip(2), &drivers, environment)
}

fn fast(context: Context) -> Context {
    let soon = Duration::from_millis(50);
    Context { pace: Pace { retry: soon, poll: soon, settle: soon, ..Pace::default() }, ..context }
}
