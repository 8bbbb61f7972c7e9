//! `remuda debug`: decisions about clusters, kept in files and made again.
//!
//! What a decision is made of is read with the caller's rights, as the controllers of the server read it; the
//! server has no door for it. Without `--with-secrets` the file can be shown to others.

use std::{
    fs::OpenOptions,
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, api::ListParams};
use remuda_cli::{Code, Global, Hooks, Session};
use remuda_control::{Ctx, ObjectKey};
use remuda_distro::{Current, Distro, document, release::Source};
use remuda_names::{PROGRAM, path};
use remuda_planner::{
    input::Input,
    record::{Decision, FORMAT, Record},
};
use serde_json::{Value, json};

use crate::{
    command::Format,
    failure::{Failure, chain},
    output, serve,
    version::VERSION,
};

/// For everything that is read of a server.
const PATIENCE: Duration = Duration::from_secs(60);
/// Plans of a thousand machines are less.
const LARGEST: u64 = 256 << 20;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write down what the planner decides about a cluster, and what it decides by
    #[command(
        after_help = "Tokens, Secrets, variables, chart values, manifests and most values of the configuration are left out,
and so is what plans say of them. Machine names, addresses, labels, versions and messages stay: look at the file before
it goes to others. It takes the rights of an administrator.

Examples:
  remuda debug planner-input demo > demo.json
  remuda debug planner-input demo --output demo.json
  remuda debug planner-input demo --with-secrets --output demo.json     whoever has the file can join the cluster"
    )]
    PlannerInput(PlannerInput),

    /// Decide again about what was written down, and say what is decided otherwise
    ///
    /// No server is needed. The exit code is 1 if this program decides otherwise than the one that wrote the file.
    #[command(after_help = "Examples:
  remuda debug replay demo.json
  remuda debug replay demo.json -o json
  remuda debug planner-input demo | remuda debug replay -")]
    Replay(Replay),
}

#[derive(Args)]
pub(crate) struct PlannerInput {
    /// Name of a cluster
    #[arg(value_name = "CLUSTER")]
    name: String,

    /// Write it to this file, which must not exist, for its owner only [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Leave the secrets in: the plans can be compared byte for byte, and a reader of the file can take over the
    /// cluster
    #[arg(long, requires = "output")]
    with_secrets: bool,

    #[command(flatten)]
    global: Global,
}

#[derive(Args)]
pub(crate) struct Replay {
    /// A file of remuda debug planner-input; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// How to print the decision
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::PlannerInput(arguments) => save(arguments),
        Command::Replay(arguments) => replay(arguments),
    }
}

fn save(arguments: &PlannerInput) -> Result<(), Failure> {
    let PlannerInput { name, output, with_secrets, global } = arguments;
    if let Some(file) = output.as_deref().filter(|file| file.exists()) {
        return Err(Failure {
            message: format!("{} exists", file.display()),
            hint: Some("choose another name, or remove it".to_owned()),
            code: Code::Conflict,
        });
    }
    let input = serve::runtime()?.block_on(async {
        let session = global.connect(&Hooks::default()).await?;
        let read = Box::pin(read(&session, name)).await;
        read.map_err(|failure| match &session.server {
            Some(server) => failure.at(server),
            None => failure,
        })
    })?;
    let program = format!("v{VERSION}");
    let record =
        if *with_secrets { Record::whole(input, &program) } else { Record::redacted(&input, &program) };
    let mut text = serde_json::to_vec_pretty(&record).map_err(|error| Failure::new(&error, None))?;
    text.push(b'\n');
    match output {
        None => output::raw(&text),
        Some(file) => {
            write(file, &text)?;
            output::note(&format!("wrote {}: {}", file.display(), record.decision.outcome));
            Ok(())
        }
    }
}

fn write(file: &Path, text: &[u8]) -> Result<(), Failure> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let written = opened.and_then(|mut opened| opened.write_all(text));
    written.map_err(|error| Failure {
        message: format!("write {}: {error}", file.display()),
        hint: None,
        code: Code::Other,
    })
}

async fn read(session: &Session, name: &str) -> Result<Input, Failure> {
    let client = &session.client;
    // Controllers wait for what they may not read. A person is told.
    let secrets: Api<Secret> = Api::all(client.clone());
    let allowed = secrets.list_metadata(&ListParams::default().limit(1)).await;
    allowed.map_err(|error| failed("list Secrets of all namespaces", &error))?;
    let key = ObjectKey::namespaced(&session.namespace, name);
    let ctx = Arc::new(Ctx::new(client.clone(), PROGRAM));
    let found = tokio::time::timeout(PATIENCE, async {
        let releases = releases(client).await?;
        let found = remuda_rke::debug::planner_input(ctx.clone(), releases, &key).await;
        found.map_err(|error| Failure::new(&error, None))
    })
    .await;
    ctx.stop().await;
    let Ok(found) = found else {
        return Err(Failure {
            message: format!("not all of what decides about {key} could be read in {} s", PATIENCE.as_secs()),
            hint: Some(
                "it takes the rights of an administrator: all kinds of Remuda and all Secrets".to_owned(),
            ),
            code: Code::TimedOut,
        });
    };
    found?.ok_or_else(|| Failure {
        message: format!("cluster {key} has no RKEControlPlane"),
        hint: Some("only clusters that are made here have one; see `remuda cluster list -A`".to_owned()),
        code: Code::NotFound,
    })
}

/// The release data of the server, which it may have from elsewhere than this program.
async fn releases(client: &Client) -> Result<Current, Failure> {
    let mut whole = json!({});
    let mut source = String::new();
    for (distro, prefix) in [(Distro::K3s, path::K3S_RELEASES), (Distro::Rke2, path::RKE2_RELEASES)] {
        let request = http::Request::get(format!("{prefix}/releases")).body(Vec::new());
        let request = request.map_err(|error| Failure::new(&error, None))?;
        let doing = format!("read the releases of {}", distro.title());
        let mut answer: Value = client.request(request).await.map_err(|error| failed(&doing, &error))?;
        whole[distro.name()] = json!({"releases": answer["data"].take()});
        source = answer["source"].as_str().unwrap_or_default().to_owned();
    }
    let catalog = document::read(whole.to_string().as_bytes(), Source::Url(source), None);
    let catalog = catalog.map_err(|error| Failure::new(&error, None))?;
    let current = Current::default();
    current.set(Some(Arc::new(catalog)));
    Ok(current)
}

fn failed(doing: &str, error: &kube::Error) -> Failure {
    let (code, hint) = match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
            (Code::Forbidden, "it takes the rights of an administrator")
        }
        kube::Error::Api(_) => (Code::Other, "the log of the server may say more"),
        _ => (Code::Unreachable, "is the server running? name another with --kubeconfig or --data-dir"),
    };
    Failure { message: format!("{doing}: {}", chain(error)), hint: Some(hint.to_owned()), code }
}

fn replay(arguments: &Replay) -> Result<(), Failure> {
    let record = load(&arguments.file)?;
    let (decision, differences) = record.replay();
    match arguments.output {
        Format::Text => text(&decision).iter().for_each(|line| output::line(line)),
        Format::Json => {
            let value = json!({"decision": decision, "differences": differences});
            output::raw(format!("{value:#}\n").as_bytes())?;
        }
    }
    for change in &record.redaction_changes {
        output::note(&format!("without its secrets: {change}"));
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(Failure {
        message: format!("v{VERSION} decides otherwise than {}: {}", record.program, differences.join("; ")),
        hint: None,
        code: Code::Other,
    })
}

fn load(file: &Path) -> Result<Record, Failure> {
    let name = file.display();
    let failed = |code, what: String| Failure { message: format!("read {name}: {what}"), hint: None, code };
    let mut text = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(LARGEST).read_to_end(&mut text)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(LARGEST).read_to_end(&mut text))
    };
    read.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => failed(Code::NotFound, "there is no such file".to_owned()),
        _ => failed(Code::Other, error.to_string()),
    })?;
    let hint = Some("files are written by `remuda debug planner-input`".to_owned());
    let record: Record = serde_json::from_slice(&text)
        .map_err(|error| Failure { hint: hint.clone(), ..failed(Code::Invalid, error.to_string()) })?;
    if record.format != FORMAT {
        let what = format!("its format is {:?}, and not {FORMAT}", record.format);
        return Err(Failure { hint, ..failed(Code::Invalid, what) });
    }
    Ok(record)
}

/// For people.
fn text(decision: &Decision) -> Vec<String> {
    let mut lines = vec![format!("outcome: {}", decision.outcome)];
    if let Some(waiting) = &decision.waiting_for {
        lines.push(format!("waiting for: {}", waiting.code));
    }
    let mut section = |name: &str, items: Vec<String>| {
        if !items.is_empty() {
            lines.push(format!("{name}:"));
            lines.extend(items.into_iter().map(|item| format!("  {item}")));
        }
    };
    section("writes", decision.writes.clone());
    let machines = decision.machines.iter().map(|(name, judged)| match judged.reasons.as_slice() {
        [] => format!("{name}: {}", judged.verdict),
        reasons => format!("{name}: {}: {}", judged.verdict, reasons.join(", ")),
    });
    section("machines", machines.collect());
    lines
}
