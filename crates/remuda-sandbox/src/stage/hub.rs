//! The hub of a data directory's machines: the relay to the server, and the parent of the holder.
//!
//! The relay lives in the host's network. Machines reach it by a Unix socket in a directory they all see,
//! which needs no privilege and no address. For each connection it looks up anew where the server is, so a
//! server that moved is found.

use std::{
    cell::Cell,
    fs::{self, File},
    os::unix::{fs::PermissionsExt, net::UnixListener as StdListener},
    process::Stdio,
    rc::Rc,
    time::{Duration, Instant},
};

use nix::unistd::setsid;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpStream, UnixListener, UnixStream},
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{interval, timeout},
};
use tokio_util::task::TaskTracker;

use super::{note, program, settle, start};
use crate::{
    cgroup,
    error::{Doing, Result, chain},
    lock::{Life, Work},
    place::{Hub, Place, RELAY, append_to, make_dir, read_json, write_json},
    server::{PUBLISHED, ServerAddress, WATCH},
};

/// The hub's control group.
pub(crate) const HUB: &str = "hub";
/// A server that does not answer for so long is down.
const CONNECT: Duration = Duration::from_secs(10);
/// A server that is away for long is not worth a line for every attempt to reach it.
const COMPLAIN: Duration = Duration::from_secs(30);
/// A hub that nobody needs any more, because a removal was interrupted, notices after this.
const LOOK: Duration = Duration::from_secs(60);

pub(crate) fn run(place: &Place) -> Result<()> {
    // Not the session of whoever wanted a machine: that may end, with everything in it.
    let _ = setsid();
    make_dir(&place.hub(), 0o700)?;
    make_dir(&place.relay(), 0o700)?;
    let Some(_life) = Life::take(&place.hub_life())? else {
        super::say("ready");
        return Ok(());
    };
    if place.ids()?.is_empty() {
        super::say("error no machine needs the hub");
        return Ok(());
    }
    cgroup::join(place.dir(), HUB);
    let log = append_to(&place.hub().join("hub.log"))?;
    let mut holder = program();
    holder.arg("hold").arg(std::process::id().to_string()).stdin(Stdio::null());
    let holder = start(&mut holder)?;
    let record = Hub { id: uuid::Uuid::new_v4().simple().to_string(), holder: holder.id().cast_signed() };
    let listener = listen(place)?;
    write_json(&place.hub_record(), &record)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.doing(|| "start the relay")?.block_on(serve(place, listener, &log))
}

fn listen(place: &Place) -> Result<StdListener> {
    let listener = bind(&place.relay().join(RELAY))?;
    listener.set_nonblocking(true).doing(|| "open the relay's socket")?;
    Ok(listener)
}

/// Listens at a path of any length: addresses of Unix sockets are short, so the directory goes by number.
pub(crate) fn bind(path: &std::path::Path) -> Result<StdListener> {
    let (dir, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
    let _ = fs::remove_file(path);
    let opened = File::open(dir).doing(|| format!("open {}", dir.display()))?;
    let short = crate::control::short(&opened, name);
    let listener = StdListener::bind(short).doing(|| format!("listen at {}", path.display()))?;
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(path, mode).doing(|| format!("close {} to others", path.display()))?;
    Ok(listener)
}

async fn serve(place: &Place, listener: StdListener, log: &File) -> Result<()> {
    let listener = UnixListener::from_std(listener).doing(|| "open the relay's socket")?;
    let mut ended = signal(SignalKind::child()).doing(|| "watch the holder")?;
    let mut stop = signal(SignalKind::terminate()).doing(|| "listen for signals")?;
    let mut look = interval(LOOK);
    look.tick().await;
    settle(log)?;
    let tasks = TaskTracker::new();
    let complaints = Rc::new(Complaints::default());
    let published = Rc::new(watch::Sender::new(()));
    let local = tokio::task::LocalSet::new();
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (place, complaints, published) =
                        (place.clone(), complaints.clone(), published.clone());
                    let pass = async move {
                        if let Err(problem) = answer(&place, stream, &published).await {
                            complaints.note(&problem);
                        }
                    };
                    drop(tasks.spawn_local(pass));
                }
                // Out of descriptors, most likely: connections under way will free some.
                Err(error) => {
                    note(&format!("accept: {error}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    local
        .run_until(async {
            tokio::select! {
                () = accept => {}
                _ = stop.recv() => {}
                _ = ended.recv() => note("the holder of the network is gone"),
                () = async { while is_needed(place) { look.tick().await; } } => note("no machine is left"),
            }
        })
        .await;
    Ok(())
}

fn is_needed(place: &Place) -> bool {
    if !place.ids().is_ok_and(|ids| ids.is_empty()) {
        return true;
    }
    // Somebody is at work, perhaps about to make the first machine again.
    !matches!(Work::wait(&place.lock(), Duration::ZERO), Ok(Some(_)) | Ok(None))
        || !place.ids().is_ok_and(|ids| ids.is_empty())
}

/// A machine says in one line which server it means, in case nobody here has said where the server is.
async fn answer(place: &Place, mut machine: UnixStream, published: &watch::Sender<()>) -> Result<(), String> {
    let Ok(Some(wanted)) = timeout(CONNECT, read_line(&mut machine)).await else { return Ok(()) };
    match wanted.as_str() {
        PUBLISHED => {
            published.send_replace(());
            Ok(())
        }
        WATCH => {
            tell(place, machine, published.subscribe()).await;
            Ok(())
        }
        _ => pass(place, machine, &wanted).await,
    }
}

/// Tells a machine the server's URL, and again whenever it is published.
async fn tell(place: &Place, mut machine: UnixStream, mut published: watch::Receiver<()>) {
    let mut end = [0; 1];
    loop {
        published.mark_unchanged();
        let known: Option<ServerAddress> = read_json(&place.server()).unwrap_or_default();
        if let Some(server) = known
            && machine.write_all(format!("{}\n", server.url).as_bytes()).await.is_err()
        {
            return;
        }
        tokio::select! {
            changed = published.changed() => if changed.is_err() { return },
            // It says nothing more: this is its end.
            _ = machine.read(&mut end) => return,
        }
    }
}

async fn pass(place: &Place, mut machine: UnixStream, wanted: &str) -> Result<(), String> {
    let known: Option<ServerAddress> = read_json(&place.server()).unwrap_or_default();
    // Machines may call nothing but the server: what they say is believed only if it is on record.
    let on_record = || {
        let records = place.records().unwrap_or_default();
        records.into_iter().flat_map(|record| record.servers).find(|server| server.url == wanted)
    };
    let Some(target) = known.or_else(on_record).and_then(|server| server.target()) else {
        return Err("a machine asked for a server that is not known".into());
    };
    let failed = |why: &str| format!("connect to {}:{}: {why}", target.host, target.port);
    let connected = timeout(CONNECT, TcpStream::connect((target.host.as_str(), target.port))).await;
    let mut server = connected.map_err(|_| failed("timed out"))?.map_err(|error| failed(&chain(&error)))?;
    let _ = server.set_nodelay(true);
    let _ = copy_bidirectional(&mut machine, &mut server).await;
    Ok(())
}

/// Problems with the server, as often as anybody wants to read about them.
#[derive(Default)]
struct Complaints(Cell<Option<Instant>>);

impl Complaints {
    fn note(&self, problem: &str) {
        if self.0.get().is_none_or(|last| last.elapsed() >= COMPLAIN) {
            self.0.set(Some(Instant::now()));
            note(problem);
        }
    }
}

pub(crate) async fn read_line(stream: &mut UnixStream) -> Option<String> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await.ok()? {
            b'\n' => return String::from_utf8(line).ok(),
            byte if line.len() < 1000 => line.push(byte),
            _ => return None,
        }
    }
}
