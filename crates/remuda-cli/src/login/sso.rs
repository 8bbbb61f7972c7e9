//! Login in a browser: it comes back to a port of this machine with a code, which is redeemed with a secret that
//! never left this program.

use std::{
    io::Read,
    process::{Command, Stdio},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use remuda_names::identity::path;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::{
    failure::{Code, Failure},
    output::Out,
};

/// For somebody to log in.
const PATIENCE: Duration = Duration::from_secs(600);
/// For a browser to say what it wants.
const MOMENT: Duration = Duration::from_secs(5);
const LONGEST: usize = 8 << 10;

/// What a login in a browser ended with, to be sent to the server.
pub(super) async fn login(url: &str, open: bool, out: &Out) -> Result<Value, Failure> {
    let failed = |error: std::io::Error| Failure::new(Code::Other, format!("wait for the browser: {error}"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let (state, verifier) = (random()?, random()?);
    let page = format!("{url}{}?port={port}&state={state}&challenge={}", path::SSO, challenge(&verifier)?);
    out.note(&format!("log in with your browser at\n  {page}"));
    if open {
        show(&page);
    }
    let code = match timeout(PATIENCE, come_back(&listener, &state)).await {
        Ok(code) => code.map_err(failed)?,
        Err(_) => return Err(Failure::new(Code::TimedOut, "nobody logged in with the browser")),
    };
    Ok(json!({"code": code, "verifier": verifier}))
}

fn show(page: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let command = Command::new(program)
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    // Whoever has no browser here has read the address.
    drop(command);
}

/// The code, from the first request that knows the state. Others on this machine may ask, too.
async fn come_back(listener: &TcpListener, state: &str) -> std::io::Result<String> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let head = timeout(MOMENT, read_head(&mut stream)).await.ok().flatten();
        let code = head.as_deref().and_then(|head| code(head, state));
        let (status, text) = match &code {
            Some(_) => ("200 OK", "You are logged in. This page can be closed."),
            None => ("404 Not Found", "This is not what is waited for."),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{text}",
            text.len()
        );
        let _ = timeout(MOMENT, async {
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await
        })
        .await;
        if let Some(code) = code {
            return Ok(code);
        }
    }
}

async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    while bytes.len() < LONGEST && !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut piece).await.ok()? {
            0 => return None,
            length => bytes.extend_from_slice(&piece[..length]),
        }
    }
    String::from_utf8(bytes).ok()
}

/// The code in a request, if it is the one of this login. Both need no decoding.
fn code(head: &str, state: &str) -> Option<String> {
    let target = head.lines().next()?.strip_prefix("GET /?")?.split(' ').next()?;
    let value = |name: &str| target.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let code = value("code").filter(|code| !code.is_empty())?;
    (value("state") == Some(state)).then(|| code.to_owned())
}

fn random() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| Failure::new(Code::Other, format!("read random numbers: {error}")))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// `S256` of RFC 7636.
fn challenge(verifier: &str) -> Result<String, Failure> {
    let hex = remuda_plan::sha256_hex(verifier.as_bytes());
    let bytes: Option<Vec<u8>> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect();
    let bytes = bytes.ok_or_else(|| Failure::new(Code::Other, "a hash is not as expected"))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_browser_that_was_sent_is_believed() {
        let check = |line: &str| code(&format!("{line}\r\nHost: x\r\n\r\n"), "s-1");
        assert_eq!(check("GET /?code=abc&state=s-1 HTTP/1.1").as_deref(), Some("abc"));
        assert_eq!(check("GET /?state=s-1&code=abc HTTP/1.1").as_deref(), Some("abc"));
        for bad in [
            "GET /?code=abc&state=s-2 HTTP/1.1",
            "GET /?code=abc HTTP/1.1",
            "GET /?code=&state=s-1 HTTP/1.1",
            "POST /?code=abc&state=s-1 HTTP/1.1",
            "GET /favicon.ico HTTP/1.1",
            "",
        ] {
            assert_eq!(check(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_challenge_is_that_of_the_standard() {
        let challenge = challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk").unwrap();
        assert_eq!(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[tokio::test]
    async fn requests_that_are_not_meant_do_not_end_the_wait() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let ask = |request: &'static str| async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let asking = async {
            assert!(ask("GET /?code=x&state=other HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404"));
            assert!(ask("GET /?code=x&state=s HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 200"));
        };
        let (code, ()) = tokio::join!(come_back(&listener, "s"), asking);
        assert_eq!(code.unwrap(), "x");
    }
}
