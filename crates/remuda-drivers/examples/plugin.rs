//! The built-in drivers as a plugin: `MACHINE_PLUGIN_DRIVER_NAME` says which. Tests use it as a driver program
//! that speaks Go's protocol; `REMUDA_DIGITALOCEAN_URL` points it at a fake.

use std::{process::ExitCode, sync::Arc};

use remuda_drivers::{
    builtin::{Context, Registry},
    digitalocean::DigitalOcean,
    plugin::serve_builtin,
};

fn main() -> ExitCode {
    let mut drivers = Registry::standard();
    if let Some(url) = std::env::var_os("REMUDA_DIGITALOCEAN_URL") {
        let url = url.to_string_lossy().into_owned();
        drivers = drivers.with("digitalocean", false, move |context| {
            Arc::new(DigitalOcean::new(Context { digitalocean: url.clone(), ..context }))
        });
    }
    serve_builtin(&drivers, "")
}
