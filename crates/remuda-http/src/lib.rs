//! Calls to servers elsewhere, which are not believed: each wait is bounded, and so is what is read; a redirect is
//! followed only if its caller decides so; errors tell no addresses, as those may hold a signature or a secret.
//!
//! This is where clients of [`reqwest`] are made. What needs connections of another kind (the node agent, which stays
//! small; what goes through a tunnel) makes its own: a list of those, with reasons, is in `xtask/src/source_rules.rs`.

use std::time::Duration;

use http::header::LOCATION;
pub use reqwest::{Certificate, Client, Error, Response, Url};

/// What calls say they come from.
const USER_AGENT: &str = concat!("remuda/", env!("CARGO_PKG_VERSION"));

/// Whose certificates are believed.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    #[default]
    System,
    Beside(Vec<Certificate>),
    Only(Vec<Certificate>),
    /// Only for a setting of people that says so, in so many words.
    Anything,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub connect: Duration,
    /// Between two pieces of an answer, and before the first.
    pub silence: Duration,
    /// For all of an exchange. Without it, an answer may last for as long as it goes on.
    pub whole: Option<Duration>,
    pub trust: Trust,
    /// Not through a proxy, whatever the environment says.
    pub direct: bool,
}

impl Options {
    /// For answers that are short.
    pub fn within(whole: Duration) -> Self {
        Self { whole: Some(whole), ..Self::streaming(whole) }
    }

    /// For answers that may be long, as long as something comes.
    pub fn streaming(silence: Duration) -> Self {
        let connect = Duration::from_secs(10).min(silence);
        Self { connect, silence, whole: None, trust: Trust::System, direct: false }
    }
}

pub fn client(options: Options) -> Result<Client, Error> {
    let mut builder = Client::builder()
        .user_agent(USER_AGENT)
        // Who answers with another address does not choose where this program speaks to, with credentials in hand.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(options.connect)
        .read_timeout(options.silence);
    if let Some(whole) = options.whole {
        builder = builder.timeout(whole);
    }
    if options.direct {
        builder = builder.no_proxy();
    }
    builder = match options.trust {
        Trust::System => builder,
        Trust::Beside(certificates) => {
            certificates.into_iter().fold(builder, reqwest::ClientBuilder::add_root_certificate)
        }
        Trust::Only(certificates) => builder.tls_certs_only(certificates),
        Trust::Anything => builder.tls_danger_accept_invalid_certs(true),
    };
    builder.build().map_err(Error::without_url)
}

/// Certificates in PEM; `None` if these are none.
pub fn certificates(pem: &[u8]) -> Option<Vec<Certificate>> {
    Certificate::from_pem_bundle(pem).ok().filter(|found| !found.is_empty())
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("read the answer")]
    Transport(#[source] Error),
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
}

/// All of an answer.
pub async fn read(mut response: Response, most: usize) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    while let Some(piece) =
        response.chunk().await.map_err(|error| ReadError::Transport(error.without_url()))?
    {
        if bytes.len() + piece.len() > most {
            return Err(ReadError::TooLarge(most));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// A redirect without a usable address.
#[derive(Debug, thiserror::Error)]
#[error("it redirects to nowhere")]
pub struct Nowhere;

/// Where an answer says what was asked for is. Whether to ask there is the caller's decision: see [`keeps_tls`].
pub fn redirected(response: &Response) -> Result<Option<Url>, Nowhere> {
    if !response.status().is_redirection() {
        return Ok(None);
    }
    let place = response.headers().get(LOCATION).and_then(|place| place.to_str().ok());
    place.and_then(|place| response.url().join(place).ok()).map(Some).ok_or(Nowhere)
}

/// A redirect from TLS to none lets everyone on the way read and answer.
pub fn keeps_tls(from: &Url, to: &Url) -> bool {
    to.scheme() == "https" || from.scheme() != "https"
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        task::JoinSet,
    };

    use super::*;

    /// Answers every connection with the same, whatever is asked.
    async fn server(tasks: &mut JoinSet<()>, answer: &'static str) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Url::parse(&format!("http://{address}/a/b")).unwrap()
    }

    fn direct() -> Client {
        client(Options { direct: true, ..Options::within(Duration::from_secs(20)) }).unwrap()
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer_and_nothing_more() {
        let mut tasks = JoinSet::new();
        let url =
            server(&mut tasks, "HTTP/1.1 302 Found\r\nlocation: ../c\r\ncontent-length: 0\r\n\r\n").await;
        let answer = direct().get(url.clone()).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 302);
        let next = redirected(&answer).unwrap().unwrap();
        assert_eq!((next.path(), next.host_str()), ("/c", url.host_str()));
        let nowhere = server(&mut tasks, "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n").await;
        assert!(redirected(&direct().get(nowhere).send().await.unwrap()).is_err());
    }

    #[test]
    fn tls_is_not_left_by_a_redirect() {
        let url = |text: &str| Url::parse(text).unwrap();
        let (plain, secure) = (url("http://a"), url("https://a"));
        let may = [(&plain, &plain), (&plain, &secure), (&secure, &secure), (&secure, &plain)];
        assert_eq!(may.map(|(from, to)| keeps_tls(from, to)), [true, true, true, false]);
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_not_kept() {
        let mut tasks = JoinSet::new();
        let url = server(&mut tasks, "HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nhello world").await;
        let answer = async || direct().get(url.clone()).send().await.unwrap();
        assert_eq!(read(answer().await, 11).await.unwrap(), b"hello world");
        assert!(matches!(read(answer().await, 10).await, Err(ReadError::TooLarge(10))));
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_not_waited_for_and_its_address_is_not_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/secret", listener.local_addr().unwrap());
        for options in
            [Options::within(Duration::from_millis(50)), Options::streaming(Duration::from_millis(50))]
        {
            let client = client(Options { direct: true, ..options }).unwrap();
            let error = client.get(&url).send().await.unwrap_err();
            assert!(error.is_timeout(), "{error:?}");
        }
        drop(listener);
        let mut tasks = JoinSet::new();
        let short = server(&mut tasks, "HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nhello").await;
        let url = short.join("/secret").unwrap();
        let ReadError::Transport(error) =
            read(direct().get(url).send().await.unwrap(), 20).await.unwrap_err()
        else {
            panic!("it is cut off");
        };
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}
