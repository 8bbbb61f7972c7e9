//! One attempt to open the tunnel.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use parking_lot::Mutex;
use remuda_agent::{
    client::{Client, Timeouts},
    install::Registration,
    proxy::Proxies,
};
use remuda_names::gateway::path;
use remuda_tunnel::{
    client::{self, BoxError, handshake},
    readahead::ReadAhead,
    server::{PARAMS_HEADER, TOKEN_HEADER},
    socket::BoxSocket,
};
use tokio::time::sleep;

use crate::{
    account::Account,
    config::Config,
    hop::{Failure, Hop},
};

/// Opens tunnels; every clone is the same. Remembers what does not change from one attempt to the next.
#[derive(Clone)]
pub struct Connector(Arc<Inner>);

struct Inner {
    config: Config,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Trusts the server. Forgotten when the server's certificate is no longer one it trusts.
    client: Option<Client>,
    registered: bool,
    /// What the server was told last.
    told: Option<Account>,
}

impl Connector {
    /// A connector that has not tried yet.
    pub fn new(config: Config) -> Connector {
        let known = Mutex::new(Known { registered: config.registered, ..Known::default() });
        Connector(Arc::new(Inner { config, known }))
    }

    /// Opens a tunnel.
    pub async fn attempt(&self) -> Result<BoxSocket, Failure> {
        let config = &self.0.config;
        let token = config.token().map_err(|error| Failure::new(Hop::Token, &error))?;
        let account = Account::read(config).await?;
        let client = self.client().await?;
        let registered = self.0.known.lock().registered;
        let path = if registered { path::CONNECT } else { path::CONNECT_REGISTER };
        let address = format!("{}{path}", config.server);
        let (plain, websocket) = (uri(&address)?, uri(&address.replacen("http", "ws", 1))?);
        let stream = match client.open(&plain, ReadAhead::new).await.map_err(Failure::from) {
            Ok(stream) => stream,
            Err(failure) => {
                if failure.hop == Hop::Tls {
                    self.0.known.lock().client = None;
                }
                return Err(failure);
            }
        };
        let mut headers = HeaderMap::new();
        for (name, value) in [(TOKEN_HEADER, token), (PARAMS_HEADER, account.parameters())] {
            let mut value = HeaderValue::try_from(value)
                .map_err(|error| Failure { hop: Hop::Token, reason: format!("{name}: {error}") })?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        match handshake(stream, &websocket, &headers).await.map_err(Failure::from) {
            Ok(socket) => {
                *self.0.known.lock() = Known { client: Some(client), registered: true, told: Some(account) };
                Ok(Box::new(socket))
            }
            Err(failure) => {
                // A server that does not know the cluster any more may let it register once again.
                self.0.known.lock().registered = registered && failure.hop < Hop::Token;
                Err(failure)
            }
        }
    }

    /// Trusts the server by what the manifest says about it.
    async fn client(&self) -> Result<Client, Failure> {
        if let Some(client) = &self.0.known.lock().client {
            return Ok(client.clone());
        }
        let config = &self.0.config;
        let server = Registration {
            server: config.server.clone(),
            ca_checksum: config.ca_checksum.clone(),
            // Nothing to be strict about: the system's authorities are all there is.
            strict: config.strict && config.ca_checksum.is_some(),
            ..Registration::default()
        };
        let trust = server.establish_trust(&config.environment).await?;
        let tls = trust.config().map_err(|error| Failure::new(Hop::Tls, &error))?;
        let seconds = Duration::from_secs;
        let timeouts = Timeouts { connect: seconds(10), response: seconds(10), idle: seconds(60) };
        let client = Client { tls, server_name: None, proxies: Proxies::of(&config.environment), timeouts };
        self.0.known.lock().client = Some(client.clone());
        Ok(client)
    }

    /// Returns when the server was told something that is not so any more, looking every `period`.
    pub(crate) async fn outdated(&self, period: Duration) {
        loop {
            sleep(period.mul_f64(0.75 + rand::random::<f64>() / 2.0)).await;
            let Some(told) = self.0.known.lock().told.clone() else { continue };
            // An API that does not answer says nothing about the token.
            if Account::read(&self.0.config).await.is_ok_and(|account| account != told) {
                return;
            }
        }
    }
}

impl client::Connector for Connector {
    fn connect(&self, _: HeaderMap) -> BoxFuture<'static, Result<BoxSocket, BoxError>> {
        let connector = self.clone();
        Box::pin(async move { Ok(connector.attempt().await?) })
    }
}

fn uri(address: &str) -> Result<Uri, Failure> {
    address.parse().map_err(|error| Failure { hop: Hop::Dns, reason: format!("{address}: {error}") })
}
