//! The process of a machine's job, as tests run it: `machine machine …`. It asks the fake clouds of tests more often
//! than it would ask real ones.

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
    let drivers = Registry::standard()
        .with("digitalocean", true, |context| Arc::new(DigitalOcean::new(fast(context))))
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
