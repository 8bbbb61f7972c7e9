//! The first process of a machine.
//!
//! It builds the root, then does what a host's service manager does: lays orphans to rest, starts enabled
//! services, runs the user data once, passes connections to the server on, and answers `systemctl`. At
//! SIGTERM or SIGPWR it stops the services in reverse order and ends; with it ends everything in the machine.

use std::{fs::File, os::unix::net::UnixListener as StdListener, path::Path, rc::Rc, time::Duration};

use nix::{
    sys::{
        prctl::set_name,
        resource::{Resource, getrlimit, setrlimit},
        signal::{Signal, kill},
    },
    unistd::{Pid, getpid, sethostname},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    signal::unix::{SignalKind, signal},
    task::LocalSet,
    time::sleep,
};
use tokio_util::task::TaskTracker;

use crate::{
    control::{self, Reply, Request},
    error::{Doing, Error, Result},
    lock::Life,
    place::{Place, Record, append_to},
    stage::{note, root, settle, users},
};

pub(crate) mod bootstrap;
pub(crate) mod children;
mod files;
pub(crate) mod journal;
mod process;
mod relay;
mod services;
mod verbs;

use children::Children;
use services::Services;

/// Where programs are looked for.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What is left of the machine after its services has this long to end by itself.
const GRACE: Duration = Duration::from_millis(500);

pub(crate) fn run(place: &Place, id: &str) -> Result<()> {
    if getpid() != Pid::from_raw(1) {
        return Err(Error::Usage("init is started by the machine stage"));
    }
    let home = place.machine(id);
    let Some(_life) = Life::take(&home.life())? else {
        return Err(Error::Stage("the machine is running already, or gone".into()));
    };
    // Only now is it certain that a removal from here on finds us.
    let record = home.record()?.ok_or_else(|| Error::NotFound(id.to_owned()))?;
    if record.removing {
        return Err(Error::Removing(record.name));
    }
    // What `ps` shows; otherwise it would be the name of a link.
    let _ = set_name(c"remuda-init");
    let log = append_to(&home.console())?;
    let isolated = record.users.is_some();
    let program = match isolated {
        true => place.dir().join(users::STAGED_PROGRAM),
        false => std::env::current_exe().doing(|| "find the program")?,
    };
    sethostname(&record.hostname).doing(|| "set the host name")?;
    root::enter(place, &home, &program, &record.volumes, isolated)?;
    if isolated {
        users::drop_capabilities();
    }
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    let socket = crate::stage::bind(Path::new(control::SOCKET))?;
    socket.set_nonblocking(true).doing(|| "open the control socket")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing(|| "start the service manager")?;
    LocalSet::new().block_on(&runtime, live(&record, socket, &log))
}

async fn live(record: &Record, socket: StdListener, log: &File) -> Result<()> {
    let tasks = TaskTracker::new();
    let children = Rc::new(Children::default());
    let services = Services::new(children.clone(), tasks.clone());
    let socket = UnixListener::from_std(socket).doing(|| "open the control socket")?;
    let mut ended = signal(SignalKind::child()).doing(|| "watch processes")?;
    let mut terminate = signal(SignalKind::terminate()).doing(|| "listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).doing(|| "listen for signals")?;
    let mut power = signal(SignalKind::from_raw(Signal::SIGPWR as i32)).doing(|| "listen for signals")?;
    let relay = relay::Relay::new(tasks.clone());
    for (listen, url) in record.listens() {
        relay.open(&listen, url).await?;
    }
    drop(tasks.spawn_local(relay.follow()));
    settle(log)?;
    note("machine started");
    services.boot().await;
    drop(tasks.spawn_local(bootstrap::run(children.clone())));
    loop {
        tokio::select! {
            _ = ended.recv() => children.reap(),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = power.recv() => break,
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => drop(tasks.spawn_local(answer(services.clone(), stream))),
                Err(_) => sleep(Duration::from_millis(50)).await,
            },
        }
    }
    note("machine stops");
    let close = async {
        services.close().await;
        // Processes that belong to no service.
        let _ = kill(Pid::from_raw(-1), Signal::SIGTERM);
        sleep(GRACE).await;
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    };
    let reap = async {
        loop {
            ended.recv().await;
            children.reap();
        }
    };
    tokio::select! {
        () = close => {}
        () = reap => {}
    }
    note("machine stopped");
    Ok(())
}

async fn answer(services: Rc<Services>, stream: UnixStream) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    if (&mut stream).take(control::MOST).read_until(b'\n', &mut line).await.is_err() {
        return;
    }
    let reply = match serde_json::from_slice::<Request>(&line) {
        Ok(request) => verbs::serve(&services, &request).await,
        Err(_) => Reply { code: 1, err: "the request was not understood\n".into(), ..Reply::default() },
    };
    if let Ok(mut text) = serde_json::to_vec(&reply) {
        text.push(b'\n');
        let _ = stream.get_mut().write_all(&text).await;
    }
}
