//! A real browser, driven over the WebDriver protocol, and the pages of the dashboard as tests use them.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::harness::skipped;

/// For anything to appear that does not depend on machines.
const SOON: Duration = Duration::from_secs(20);
/// How an element is named in answers; the standard has this constant.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window. Ends with its test; one that fails leaves a screenshot.
pub(crate) struct Browser {
    driver: Child,
    address: String,
    session: String,
    site: String,
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
}

impl Browser {
    /// `None`, and a loud word, where there is no browser.
    pub(crate) fn open(site: &str) -> Option<Browser> {
        for program in ["chromedriver", "chromium"] {
            let found =
                Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if found.is_err() {
                skipped(&format!("there is no {program} in PATH: the dashboard is not tested in a browser"));
                return None;
            }
        }
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let port = line.split("started successfully on port ").nth(1)?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        let address = format!("http://127.0.0.1:{}", port.expect("chromedriver says where it listens"));
        let mut browser = Browser {
            driver,
            address,
            session: String::new(),
            site: site.to_owned(),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            client: reqwest::Client::new(),
        };
        let arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "acceptInsecureCerts": true,
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments},
        }}});
        let made = browser.ask("POST", "/session", Some(&wanted)).expect("a session begins");
        browser.session = format!("/session/{}", made["sessionId"].as_str().unwrap());
        Some(browser)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let request = self.client.request(method.parse().unwrap(), format!("{}{path}", self.address));
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let answer = self.runtime.block_on(async {
            let response = request.timeout(Duration::from_secs(60)).send().await?;
            let good = response.status().is_success();
            response.json::<Value>().await.map(|body| (good, body))
        });
        let (good, mut body) = answer.map_err(|error| error.to_string())?;
        let value = body["value"].take();
        if good { Ok(value) } else { Err(value["message"].as_str().unwrap_or_default().to_owned()) }
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = (method == "POST").then_some(body);
        self.ask(method, &format!("{}{path}", self.session), body)
    }

    /// Runs a script in the page and returns its value.
    #[track_caller]
    pub(crate) fn script(&self, text: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({"script": text, "args": []})).unwrap()
    }

    /// Loads a path of the server.
    #[track_caller]
    pub(crate) fn load(&self, path: &str) {
        self.command("POST", "/url", &json!({"url": format!("{}{path}", self.site)})).unwrap();
    }

    /// Waits until an expression of the page is true.
    #[track_caller]
    pub(crate) fn wait_for(&self, patience: Duration, expression: &str) {
        let started = Instant::now();
        loop {
            let script = format!("return Boolean({expression})");
            let held = self.command("POST", "/execute/sync", &json!({"script": script, "args": []}));
            if held == Ok(Value::Bool(true)) {
                return;
            }
            if started.elapsed() > patience {
                let shown = self.command(
                    "POST",
                    "/execute/sync",
                    &json!({"script": "return document.body.innerText", "args": []}),
                );
                panic!(
                    "not within {patience:?}: {expression}\n{held:?}\nthe page: {}",
                    shown.unwrap_or_default()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    pub(crate) fn wait(&self, expression: &str) {
        self.wait_for(SOON, expression);
    }

    /// Waits until a text is somewhere on the page.
    #[track_caller]
    pub(crate) fn sees(&self, text: &str) {
        self.wait(&format!("document.body.innerText.includes({})", json!(text)));
    }

    /// Whether a text is on the page now.
    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> bool {
        self.script(&format!("return document.body.innerText.includes({})", json!(text))) == Value::Bool(true)
    }

    #[track_caller]
    fn find(&self, selector: &str) -> String {
        self.wait(&format!("document.querySelector({})", json!(selector)));
        let found =
            self.command("POST", "/element", &json!({"using": "css selector", "value": selector})).unwrap();
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Waits for an element, and clicks it as a person does. What is redrawn meanwhile is found again.
    #[track_caller]
    pub(crate) fn click(&self, selector: &str) {
        let started = Instant::now();
        loop {
            let element = self.find(selector);
            match self.command("POST", &format!("/element/{element}/click"), &json!({})) {
                Ok(_) => return,
                Err(error) if started.elapsed() > SOON => panic!("{selector} cannot be clicked: {error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Clicks the button, link or menu item of this text.
    #[track_caller]
    pub(crate) fn press(&self, text: &str) {
        let script = format!(
            "const all = [...document.querySelectorAll('dialog[open] button, dialog[open] a')]; \
             const page = [...document.querySelectorAll('button, a, [role=menuitem]')]; \
             const one = (all.length ? all : page).find((one) => one.innerText.trim() === {} && !one.disabled); \
             document.querySelectorAll('[data-pressed]').forEach((old) => old.removeAttribute('data-pressed')); \
             one?.setAttribute('data-pressed', ''); return Boolean(one)",
            json!(text)
        );
        let started = Instant::now();
        while self.script(&script) != Value::Bool(true) {
            assert!(
                started.elapsed() < SOON,
                "there is no button {text:?}: {}",
                self.script("return document.body.innerText")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        self.click("[data-pressed]");
    }

    /// Types into an element as a person does.
    #[track_caller]
    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.command("POST", &format!("/element/{element}/value"), &json!({"text": text})).unwrap();
    }

    #[track_caller]
    pub(crate) fn keys(&self, keys: &str) {
        let presses: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
            })
            .collect();
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": presses}]});
        self.command("POST", "/actions", &actions).unwrap();
    }

    /// Errors and warnings of the page since the last time.
    #[track_caller]
    pub(crate) fn complaints(&self) -> Vec<String> {
        let lines = self.command("POST", "/se/log", &json!({"type": "browser"})).unwrap();
        let lines = lines.as_array().unwrap().iter();
        let lines = lines.filter(|line| matches!(line["level"].as_str(), Some("SEVERE" | "WARNING")));
        let lines = lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned());
        // Machines of other tests come and go with their interfaces; the browser takes that for another network, and
        // the page asks again.
        lines.filter(|line| !line.contains("ERR_NETWORK_CHANGED")).collect()
    }

    /// What axe-core finds wrong with the page: rules, and where they are broken.
    #[track_caller]
    pub(crate) fn violations(&self, axe: &str) -> Value {
        self.script(axe);
        let run = "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then((found) => done(found.violations.map((one) => \
                   [one.id, one.nodes.map((node) => node.target.join(' '))])), (error) => done([String(error)]))";
        self.command("POST", "/execute/async", &json!({"script": run, "args": []})).unwrap()
    }

    /// Logs in at the page of the login.
    #[track_caller]
    pub(crate) fn login(&self, user: &str, password: &str) {
        self.type_into("[name=username]", user);
        self.type_into("[name=password]", password);
        self.click("button[type=submit]");
    }

    fn screenshot(&self) -> Option<PathBuf> {
        let picture = self.command("GET", "/screenshot", &Value::Null).ok()?;
        let bytes = STANDARD.decode(picture.as_str()?).ok()?;
        let path = std::env::temp_dir().join(format!("remuda-dashboard-{}.png", std::process::id()));
        fs::write(&path, bytes).ok()?;
        Some(path)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(path) = self.screenshot()
        {
            eprintln!("--- the page as it was: {}", path.display());
        }
        let _ = self.command("DELETE", "", &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
