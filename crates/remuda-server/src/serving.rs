//! The serving certificate: made, renewed before it ends, and extended by addresses clients use.
//!
//! Nothing is polled. A connection that arrives at an address the certificate lacks is the event
//! that an address is new; the end of the certificate is known in advance.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use remuda_base::Chain;
use remuda_names::file;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    addresses,
    config::{Config, OwnCertificate, address},
    datadir::{self, DataDir, DataDirError},
    pki::{Issued, Pki, PkiError},
    tls::{self, CertificateError, INTERNAL_NAMES, Presented},
};

#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error("make a serving certificate")]
    Issue(#[from] PkiError),
    #[error("use the serving certificate")]
    Generated(#[source] CertificateError),
    #[error("use --tls-cert {} and --tls-key {}", .files.cert.display(), .files.key.display())]
    Own { files: OwnCertificate, source: CertificateError },
}

/// Addresses learnt from connections; a machine has far fewer, so more means something is odd.
const MAX_LEARNT: usize = 256;
/// Sleeping in pieces, since a clock that is set does not wake a sleeper.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3600);

pub struct Serving {
    pki: Arc<Pki>,
    dir: Arc<DataDir>,
    presented: Arc<Presented>,
    own: Option<OwnCertificate>,
    /// Addresses in the generated certificate.
    known: ArcSwap<BTreeSet<IpAddr>>,
    state: Mutex<State>,
    wake: Notify,
}

struct State {
    /// What the generated certificate is for.
    names: BTreeSet<String>,
    renew_at: Timestamp,
    learnt: usize,
}

impl Serving {
    /// Takes the certificate of the last run, or makes one if there is none or it no longer fits.
    pub fn new(
        pki: Arc<Pki>,
        dir: Arc<DataDir>,
        config: &Config,
        now: Timestamp,
    ) -> Result<Serving, ServingError> {
        let own = config.tls.as_ref().map(load_own).transpose()?;
        let names = wanted(config);
        let issued = match stored(&dir)? {
            Some(issued) if fits(&issued, &pki, &names, now) => issued,
            _ => issue(&pki, &dir, &names, now)?,
        };
        let generated = certified(&issued)?;
        Ok(Serving {
            presented: Arc::new(Presented::new(generated, own)),
            own: config.tls.clone(),
            known: ArcSwap::from_pointee(ips(&issued.names)),
            state: Mutex::new(State { renew_at: issued.validity.renew_at(), names: issued.names, learnt: 0 }),
            wake: Notify::new(),
            pki,
            dir,
        })
    }

    pub fn presented(&self) -> Arc<Presented> {
        self.presented.clone()
    }

    /// A client has connected to this address of ours. If the certificate lacks it, it gets it.
    pub fn reached_at(&self, ip: IpAddr) {
        if self.known.load().contains(&ip) {
            return;
        }
        let mut state = self.state.lock();
        if state.learnt < MAX_LEARNT && state.names.insert(ip.to_string()) {
            state.learnt += 1;
            state.renew_at = Timestamp::MIN;
            self.wake.notify_one();
        }
    }

    /// Clients know this server by this name, or will.
    pub fn known_as(&self, host: &str) {
        // What cannot be in a certificate must not keep other names out of it.
        if address::check_san(host).is_err() {
            return;
        }
        let mut state = self.state.lock();
        if state.learnt < MAX_LEARNT && state.names.insert(host.trim_end_matches('.').to_ascii_lowercase()) {
            state.learnt += 1;
            state.renew_at = Timestamp::MIN;
            self.wake.notify_one();
        }
    }

    /// Reads the operator's certificate again.
    pub fn reload(&self) {
        let Some(own) = &self.own else { return };
        match load_own(own) {
            Ok(certificate) => {
                self.presented.replace_own(certificate);
                info!(certificate = %own.cert.display(), "certificate read again");
            }
            Err(error) => error!(error = %Chain(&error), "the certificate in use stays"),
        }
    }

    /// Renews the certificate when its time has come or an address is missing.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let left = self.state.lock().renew_at.duration_since(Timestamp::now());
            let left = Duration::try_from(left).unwrap_or_default().min(LONGEST_SLEEP);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = tokio::time::sleep(left) => {}
            }
            let now = Timestamp::now();
            if self.state.lock().renew_at > now {
                continue;
            }
            if let Err(error) = self.renew(now) {
                warn!(error = %Chain(&error), "cannot renew the serving certificate");
                self.state.lock().renew_at = now + Duration::from_secs(600);
            }
        }
    }

    fn renew(&self, now: Timestamp) -> Result<(), ServingError> {
        let names = self.state.lock().names.clone();
        let issued = issue(&self.pki, &self.dir, &names, now)?;
        self.presented.replace_generated(certified(&issued)?);
        self.known.store(Arc::new(ips(&issued.names)));
        let mut state = self.state.lock();
        // An address that came meanwhile waits for the next round.
        if state.names == issued.names {
            state.renew_at = issued.validity.renew_at();
        }
        info!(names = issued.names.len(), until = %issued.validity.not_after, "serving certificate renewed");
        Ok(())
    }
}

/// Reads and checks the operator's certificate.
pub fn load_own(files: &OwnCertificate) -> Result<rustls::sign::CertifiedKey, ServingError> {
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|source| DataDirError::Read { path: path.to_owned(), source })
    };
    datadir::check_key(&files.key)?;
    let (chain, key) = (read(&files.cert)?, read(&files.key)?);
    tls::certified_key(&chain, &key).map_err(|source| ServingError::Own { files: files.clone(), source })
}

/// Everything the server may be called.
fn wanted(config: &Config) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = INTERNAL_NAMES.iter().map(|name| (*name).to_owned()).collect();
    names.extend(addresses::hostname());
    names.extend(["127.0.0.1".to_owned(), "::1".to_owned()]);
    names.extend(addresses::interfaces().iter().map(ToString::to_string));
    names.extend(config.advertise.as_ref().map(|advertise| advertise.host.clone()));
    names.extend(config.tls_san.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()));
    names
}

fn ips(names: &BTreeSet<String>) -> BTreeSet<IpAddr> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

fn stored(dir: &DataDir) -> Result<Option<Issued>, ServingError> {
    let (Some(cert), Some(key)) = (dir.read(file::SERVER_CERT)?, dir.read_key(file::SERVER_KEY)?) else {
        return Ok(None);
    };
    // An unreadable one is simply made anew.
    Ok(Issued::parse(cert, key))
}

fn issue(pki: &Pki, dir: &DataDir, names: &BTreeSet<String>, now: Timestamp) -> Result<Issued, ServingError> {
    let issued = pki.serving(names, now)?;
    // The key first: a certificate without its key would be taken for a pair at the next start,
    // found not to fit, and made anew. Either way nothing breaks.
    dir.write(file::SERVER_KEY, &issued.key)?;
    dir.write(file::SERVER_CERT, &issued.cert)?;
    Ok(issued)
}

/// A certificate of another authority is what an exchanged `pki` directory leaves.
fn fits(issued: &Issued, pki: &Pki, names: &BTreeSet<String>, now: Timestamp) -> bool {
    !issued.validity.renew_needed(now)
        && names.is_subset(&issued.names)
        && certified(issued).is_ok()
        && pki.issued_server(issued)
}

fn certified(issued: &Issued) -> Result<rustls::sign::CertifiedKey, ServingError> {
    tls::certified_key(&issued.cert, &issued.key).map_err(ServingError::Generated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Options;

    struct Bench {
        _parent: tempfile::TempDir,
        dir: Arc<DataDir>,
        pki: Arc<Pki>,
        config: Config,
    }

    impl Bench {
        fn new() -> Bench {
            let parent = tempfile::tempdir().unwrap();
            let path = parent.path().join("data");
            let dir = Arc::new(DataDir::open(&path).unwrap());
            let pki = Arc::new(Pki::open(&dir, Timestamp::now()).unwrap());
            let config = Options { data_dir: Some(path), ..Options::default() }.resolve().unwrap();
            Bench { _parent: parent, dir, pki, config }
        }

        fn serving(&self, now: Timestamp) -> Serving {
            Serving::new(self.pki.clone(), self.dir.clone(), &self.config, now).unwrap()
        }

        fn stored(&self) -> Issued {
            stored(&self.dir).unwrap().unwrap()
        }
    }

    #[test]
    fn a_certificate_is_kept_while_it_fits() {
        let mut bench = Bench::new();
        let now = Timestamp::now();
        bench.serving(now);
        let first = bench.stored();
        bench.serving(now);
        assert_eq!(bench.stored().cert, first.cert);
        bench.config.tls_san = vec!["example.org".to_owned()];
        bench.serving(now);
        let second = bench.stored();
        assert!(second.names.contains("example.org"));
        bench.serving(second.validity.renew_at());
        assert_ne!(bench.stored().cert, second.cert);
    }

    #[test]
    fn a_certificate_of_another_authority_is_replaced() {
        let bench = Bench::new();
        bench.serving(Timestamp::now());
        let foreign = Bench::new();
        let issued = foreign.pki.serving(&bench.stored().names, Timestamp::now()).unwrap();
        bench.dir.write(file::SERVER_CERT, &issued.cert).unwrap();
        bench.dir.write(file::SERVER_KEY, &issued.key).unwrap();
        bench.serving(Timestamp::now());
        assert_ne!(bench.stored().cert, issued.cert);
        assert!(bench.pki.issued_server(&bench.stored()));
    }

    #[tokio::test]
    async fn an_address_a_client_used_is_added_while_running() {
        let bench = Bench::new();
        let serving = Arc::new(bench.serving(Timestamp::now()));
        let stop = CancellationToken::new();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(serving.clone().run(stop.clone()));
        let address = IpAddr::from([192, 0, 2, 7]);
        assert!(!bench.stored().names.contains("192.0.2.7"));
        serving.reached_at(address);
        while !serving.known.load().contains(&address) {
            tokio::task::yield_now().await;
        }
        assert!(bench.stored().names.contains("192.0.2.7"));
        stop.cancel();
        tasks.join_all().await;
    }
}
