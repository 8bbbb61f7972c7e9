//! A headless browser, driven over the WebDriver protocol by `chromedriver`.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// For anything to appear.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one window; it ends when this is dropped.
pub(super) struct Browser {
    driver: Child,
    address: String,
    session: String,
    site: String,
}

impl Browser {
    pub(super) async fn open(site: &str) -> anyhow::Result<Self> {
        // One that is free now; chromedriver says which it took in a sentence only.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start chromedriver: a browser is needed for this (chromium, chromium-driver)")?;
        let address = format!("127.0.0.1:{port}");
        let mut browser = Self { driver, address, session: String::new(), site: site.to_owned() };
        let started = Instant::now();
        while browser.ask("GET", "/status", &Value::Null).await.ok().is_none_or(|told| told["ready"] != true)
        {
            if started.elapsed() > PATIENCE {
                bail!("chromedriver does not answer within {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1280,900",
            "--enable-precise-memory-info",
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "acceptInsecureCerts": true, "goog:chromeOptions": {"args": arguments}, "timeouts": {"script": 600_000},
        }}});
        let made = browser.ask("POST", "/session", &wanted).await?;
        let id = made["sessionId"].as_str().context("no session began")?;
        browser.session = format!("/session/{id}");
        Ok(browser)
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let stream = TcpStream::connect(&self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.address)
            .header("content-type", "application/json")
            .header("connection", "close")
            .body(Full::new(Bytes::from(body)))?;
        let asking = async {
            let response = sender.send_request(request).await?;
            let good = response.status().is_success();
            anyhow::Ok((good, response.into_body().collect().await?.to_bytes()))
        };
        let (answer, _) = tokio::join!(asking, connection);
        let (good, bytes) = answer?;
        let mut answer: Value = serde_json::from_slice(&bytes)?;
        let value = answer["value"].take();
        if !good {
            bail!("{method} {path}: {}", value["message"].as_str().unwrap_or_default());
        }
        Ok(value)
    }

    async fn command(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.ask("POST", &format!("{}{path}", self.session), body).await
    }

    pub(super) async fn load(&self, path: &str) -> anyhow::Result<()> {
        let url = if path.starts_with("about:") { path.to_owned() } else { format!("{}{path}", self.site) };
        self.command("/url", &json!({"url": url})).await.map(drop)
    }

    /// Runs a script in the page and returns its value.
    pub(super) async fn script(&self, text: &str) -> anyhow::Result<Value> {
        self.command("/execute/sync", &json!({"script": text, "args": []})).await
    }

    /// Runs a script that says when it is done, by calling `done` with its value.
    pub(super) async fn later(&self, text: &str) -> anyhow::Result<Value> {
        let script = format!("const done = arguments[arguments.length - 1]; {text}");
        self.command("/execute/async", &json!({"script": script, "args": []})).await
    }

    /// A command of the browser's own protocol.
    pub(super) async fn devtools(&self, command: &str, parameters: Value) -> anyhow::Result<Value> {
        self.command("/goog/cdp/execute", &json!({"cmd": command, "params": parameters})).await
    }

    /// Waits until an expression of the page is true.
    pub(super) async fn wait(&self, expression: &str) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            if self.script(&format!("return Boolean({expression})")).await.ok() == Some(Value::Bool(true)) {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                let shown = self.script("return document.body.innerText.slice(0, 500)").await?;
                bail!("not within {PATIENCE:?}: {expression}; the page: {shown}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Bytes of the page's own objects, once what nothing holds is collected.
    pub(super) async fn heap(&self) -> anyhow::Result<f64> {
        for _ in 0..2 {
            self.devtools("HeapProfiler.collectGarbage", json!({})).await?;
        }
        let used = self.script("return performance.memory.usedJSHeapSize").await?;
        used.as_f64().context("the browser does not say how much memory the page has")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends its browser when it is asked to; killed, it would leave that behind.
        let stopped = std::net::TcpStream::connect(&self.address).and_then(|mut stream| {
            use std::io::{Read, Write};
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            write!(
                stream,
                "DELETE {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
                self.session, self.address
            )?;
            stream.read(&mut [0; 64])
        });
        drop(stopped);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
