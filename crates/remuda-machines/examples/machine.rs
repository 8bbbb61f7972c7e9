//! The process of a machine's job, as tests run it: `machine machine …`. It asks the fake clouds of tests more often
//! than it would ask real ones, and where `REMUDA_TEST_ELSEWHERE` says, as `driver=address,…`: the program itself has no
//! way to be told.

use std::{process::ExitCode, time::Duration};

use remuda_drivers::{
    builtin::{Context, Registry},
    http::Pace,
    plugin::serve_builtin,
};
use remuda_machines::job;

fn main() -> ExitCode {
    let standard = Registry::standard();
    let mut drivers = Registry::standard();
    for (name, active) in standard.names() {
        let (inner, driver) = (standard.clone(), name.to_owned());
        drivers = drivers.with(name, active, move |context| {
            inner.open(&driver, fast(context)).expect("it is one of those there are")
        });
    }
    if std::env::var_os("MACHINE_PLUGIN_TOKEN").is_some() {
        return serve_builtin(&drivers, "");
    }
    let mut environment = job::Environment::from_env();
    environment.pace.poll = Duration::from_millis(50);
    job::main_with(std::env::args().skip(2), &drivers, environment)
}

fn fast(mut context: Context) -> Context {
    let soon = Duration::from_millis(50);
    let elsewhere = std::env::var("REMUDA_TEST_ELSEWHERE").unwrap_or_default();
    let pairs = elsewhere.split(',').filter_map(|pair| pair.split_once('='));
    context.elsewhere.extend(pairs.map(|(driver, address)| (driver.to_owned(), address.to_owned())));
    Context { pace: Pace { retry: soon, poll: soon, settle: soon, ..Pace::default() }, ..context }
}
