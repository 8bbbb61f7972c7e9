//! What `systemctl` can ask for.

use std::{fmt::Write, rc::Rc};

use super::{
    files, journal,
    services::{Active, Service, Services},
};
use crate::{
    control::{Reply, Request},
    unit::Exit,
};

const DONE: u8 = 0;
const FAILED: u8 = 1;
/// `is-active` and `status` of what does not run.
const NOT_ACTIVE: u8 = 3;
const NO_SUCH_UNIT: u8 = 4;
const NOT_FOUND: u8 = 5;

pub(super) async fn serve(services: &Rc<Services>, request: &Request) -> Reply {
    let mut reply = Reply::default();
    let units: Vec<String> = request.units.iter().map(|name| files::full_name(name)).collect();
    if let Some(bad) = units.iter().find(|name| !files::is_name(name)) {
        return Reply { code: FAILED, err: format!("Invalid unit name {bad:?}.\n"), ..reply };
    }
    match request.verb.as_str() {
        "daemon-reload" | "daemon-reexec" => {}
        "is-system-running" => reply.out.push_str("running\n"),
        "list-units" => list_units(services, &mut reply),
        "list-unit-files" => list_files(&units, &mut reply),
        "poweroff" | "halt" | "shutdown" => {
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM);
        }
        "reboot" | "kexec" | "soft-reboot" => {
            reply.code = FAILED;
            reply.err.push_str("This machine can only be restarted from its host.\n");
        }
        "reset-failed" if units.is_empty() => {
            services.known().iter().for_each(|service| services.reset_failed(&service.name));
        }
        "show" if units.is_empty() => {}
        _ if units.is_empty() => {
            reply.code = FAILED;
            reply.err.push_str("Too few arguments.\n");
        }
        "is-active" => {
            let state = |name: &String| services.get(name).active();
            let good = |state: Active| state == Active::Active;
            verdict(
                units.iter().map(|name| if is_target(name) { Active::Active } else { state(name) }),
                good,
                &mut reply,
            );
        }
        "is-failed" => {
            let states = units.iter().map(|name| services.get(name).active());
            verdict(states, |state| state == Active::Failed, &mut reply);
            reply.code = reply.code.min(1);
        }
        "is-enabled" => is_enabled(&units, &mut reply),
        "show" => units.iter().for_each(|name| show(services, name, request, &mut reply)),
        "status" => units.iter().for_each(|name| status(services, name, request, &mut reply)),
        "cat" => units.iter().for_each(|name| cat(name, &mut reply)),
        verb => {
            for name in &units {
                if let Err((code, text)) = act(services, verb, name, request, &mut reply).await {
                    reply.code = code;
                    reply.err.push_str(&text);
                    reply.err.push('\n');
                }
            }
        }
    }
    reply
}

async fn act(
    services: &Rc<Services>,
    verb: &str,
    name: &str,
    request: &Request,
    reply: &mut Reply,
) -> Result<(), (u8, String)> {
    let missing = || (NOT_FOUND, format!("Failed to {verb} {name}: Unit {name} not found."));
    let is_known = files::find(name).is_some();
    let runs = services.get(name).active() != Active::Inactive;
    match verb {
        "start"
        | "restart"
        | "reload"
        | "reload-or-restart"
        | "try-restart"
        | "condrestart"
        | "try-reload-or-restart"
        | "stop"
        | "kill"
            if !is_known && !runs && !is_target(name) =>
        {
            // Stopping what is not there is what uninstall scripts do first.
            return Err(missing());
        }
        "enable" | "disable" | "reenable" if !is_known => {
            return Err((FAILED, format!("Failed to {verb} unit: Unit file {name} does not exist.")));
        }
        _ => {}
    }
    match verb {
        "start"
        | "stop"
        | "restart"
        | "try-restart"
        | "condrestart"
        | "reload"
        | "reload-or-restart"
        | "try-reload-or-restart" => job(services, verb, name, request.no_block).await,
        "kill" => services.signal(name, &request.signal).map_err(|text| (FAILED, text)),
        "reset-failed" => {
            services.reset_failed(name);
            Ok(())
        }
        "enable" | "reenable" => {
            if verb == "reenable" {
                files::disable(name);
            }
            let unit = files::load(name).ok_or_else(missing)?;
            let done = files::enable(&unit).map_err(|text| (FAILED, text))?;
            reply.err.push_str(&done);
            if request.now { job(services, "start", name, request.no_block).await } else { Ok(()) }
        }
        "disable" => {
            reply.err.push_str(&files::disable(name));
            if request.now { job(services, "stop", name, request.no_block).await } else { Ok(()) }
        }
        "mask" => {
            if request.now {
                let _ = services.stop(name).await;
            }
            let path = format!("/etc/systemd/system/{name}");
            if std::path::Path::new(&path).is_file() && !files::is_masked(path.as_ref()) {
                return Err((FAILED, format!("Failed to mask unit: File '{path}' already exists.")));
            }
            let _ = std::fs::remove_file(&path);
            std::os::unix::fs::symlink("/dev/null", &path).map_err(|error| (FAILED, error.to_string()))
        }
        "unmask" => {
            let path = format!("/etc/systemd/system/{name}");
            if files::is_masked(path.as_ref()) {
                let _ = std::fs::remove_file(path);
            }
            Ok(())
        }
        _ => Err((FAILED, format!("Unknown command verb {verb}."))),
    }
}

async fn job(services: &Rc<Services>, verb: &str, name: &str, no_block: bool) -> Result<(), (u8, String)> {
    let work = {
        let (services, verb, name) = (services.clone(), verb.to_owned(), name.to_owned());
        async move {
            let runs = services.get(&name).active() == Active::Active;
            match verb.as_str() {
                "start" => services.start(&name).await,
                "stop" => services.stop(&name).await,
                "restart" => services.restart(&name).await,
                "reload" => services.reload(&name).await,
                "try-restart" | "condrestart" | "try-reload-or-restart" if !runs => Ok(()),
                "reload-or-restart" | "try-reload-or-restart"
                    if runs && files::load(&name).is_some_and(|unit| !unit.reload.is_empty()) =>
                {
                    services.reload(&name).await
                }
                _ => services.restart(&name).await,
            }
        }
    };
    if no_block {
        services.in_background(work);
        return Ok(());
    }
    let hint = format!("See \"systemctl status {name}\" and \"journalctl -xeu {name}\" for details.");
    work.await.map_err(|text| (FAILED, format!("Job for {name} failed because {text}.\n{hint}")))
}

fn is_target(name: &str) -> bool {
    name.ends_with(".target")
}

fn verdict(states: impl Iterator<Item = Active>, is_good: impl Fn(Active) -> bool, reply: &mut Reply) {
    // As in systemctl, one good unit is enough.
    let mut any = false;
    for state in states {
        any |= is_good(state);
        reply.out.push_str(state.as_str());
        reply.out.push('\n');
    }
    reply.code = if any { DONE } else { NOT_ACTIVE };
}

fn is_enabled(units: &[String], reply: &mut Reply) {
    let mut any = false;
    for name in units {
        match files::state(name) {
            Some(state) => {
                any |= matches!(state, "enabled" | "static");
                let _ = writeln!(reply.out, "{state}");
            }
            None => {
                let _ = writeln!(
                    reply.err,
                    "Failed to get unit file state for {name}: No such file or directory"
                );
            }
        }
    }
    reply.code = if any { DONE } else { FAILED };
}

fn properties(services: &Services, name: &str) -> Vec<(&'static str, String)> {
    let service = services.get(name);
    let state = service.state.borrow();
    let unit = files::load(name);
    let (code, status) = match state.exit {
        Some(Exit::Code(code)) => (1, code),
        Some(Exit::Signal(signal)) => (2, signal),
        None => (0, 0),
    };
    let loaded = match files::find(name) {
        Some(path) if files::is_masked(&path) => "masked",
        Some(_) => "loaded",
        None if is_target(name) => "loaded",
        None => "not-found",
    };
    let text = |moment: jiff::Timestamp| moment.strftime("%a %Y-%m-%d %H:%M:%S UTC").to_string();
    let time = text(state.since);
    let path = unit.as_ref().map(|unit| unit.path.display().to_string()).unwrap_or_default();
    vec![
        ("Id", name.to_owned()),
        ("Names", name.to_owned()),
        ("Description", unit.map(|unit| unit.description).unwrap_or_default()),
        ("LoadState", loaded.into()),
        ("ActiveState", state.active.as_str().into()),
        ("SubState", state.sub.into()),
        ("Result", state.result.into()),
        ("MainPID", state.main.unwrap_or(0).to_string()),
        ("ExecMainCode", code.to_string()),
        ("ExecMainStatus", status.to_string()),
        // Install scripts read the log from here on.
        ("ExecMainStartTimestamp", state.main_since.map(text).unwrap_or_default()),
        ("NRestarts", state.restarts.to_string()),
        ("InvocationID", state.invocation.clone()),
        ("StatusText", state.status.clone()),
        ("FragmentPath", path),
        ("UnitFileState", files::state(name).unwrap_or_default().into()),
        ("StateChangeTimestamp", time.clone()),
        ("ActiveEnterTimestamp", if state.active == Active::Active { time } else { String::new() }),
    ]
}

fn show(services: &Services, name: &str, request: &Request, reply: &mut Reply) {
    let wanted: Vec<&str> = request.properties.iter().flat_map(|list| list.split(',')).collect();
    for (key, value) in properties(services, name) {
        if !wanted.is_empty() && !wanted.contains(&key) {
            continue;
        }
        let _ =
            if request.value { writeln!(reply.out, "{value}") } else { writeln!(reply.out, "{key}={value}") };
    }
}

fn status(services: &Services, name: &str, request: &Request, reply: &mut Reply) {
    if files::find(name).is_none() && services.get(name).active() == Active::Inactive {
        let _ = writeln!(reply.err, "Unit {name} could not be found.");
        reply.code = NO_SUCH_UNIT;
        return;
    }
    let all = properties(services, name);
    let get = |key: &str| all.iter().find(|(name, _)| *name == key).map_or("", |(_, value)| value.as_str());
    let _ = writeln!(reply.out, "● {name} - {}", get("Description"));
    let _ = writeln!(
        reply.out,
        "     Loaded: {} ({}; {})",
        get("LoadState"),
        get("FragmentPath"),
        get("UnitFileState")
    );
    let _ = writeln!(
        reply.out,
        "     Active: {} ({}) since {}",
        get("ActiveState"),
        get("SubState"),
        get("StateChangeTimestamp")
    );
    if get("MainPID") != "0" {
        let _ = writeln!(reply.out, "   Main PID: {}", get("MainPID"));
    }
    if !get("StatusText").is_empty() {
        let _ = writeln!(reply.out, "     Status: \"{}\"", get("StatusText"));
    }
    let lines = journal::tail(name, request.lines.unwrap_or(10).min(10_000));
    if !lines.is_empty() {
        let _ = writeln!(reply.out, "\n{}", lines.join("\n"));
    }
    if get("ActiveState") != "active" {
        reply.code = NOT_ACTIVE;
    }
}

fn cat(name: &str, reply: &mut Reply) {
    match files::find(name).and_then(|path| Some((std::fs::read_to_string(&path).ok()?, path))) {
        Some((text, path)) => {
            let _ = writeln!(reply.out, "# {}\n{text}", path.display());
        }
        None => {
            let _ = writeln!(reply.err, "No files found for {name}.");
            reply.code = FAILED;
        }
    }
}

fn list_units(services: &Services, reply: &mut Reply) {
    let line = |service: &Rc<Service>| {
        let state = service.state.borrow();
        let description = files::load(&service.name).map(|unit| unit.description).unwrap_or_default();
        format!("{} loaded {} {} {description}\n", service.name, state.active.as_str(), state.sub)
    };
    let known = services.known();
    reply.out.extend(known.iter().filter(|service| service.active() != Active::Inactive).map(line));
}

fn list_files(units: &[String], reply: &mut Reply) {
    let mut any = units.is_empty();
    for name in units {
        if let Some(state) = files::state(name) {
            any = true;
            let _ = writeln!(reply.out, "{name} {state}");
        }
    }
    reply.code = if any { DONE } else { FAILED };
}
