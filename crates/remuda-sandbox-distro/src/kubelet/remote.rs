//! Somebody at a container from outside: commands in it, and its own streams.
//!
//! How they came (WebSocket, SPDY) is not known here: what they send and what they get are two queues. When
//! either closes they are gone, and what was started for them ends.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    sync::{broadcast::error::RecvError, mpsc},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    live::Instance,
    log::Stream,
    process::{Ended, Process, Streams},
};

/// What comes from somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    Stdin(Bytes),
    /// There will be no more input.
    End,
    Resize {
        columns: u16,
        rows: u16,
    },
}

/// What goes to somebody.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    Stdout(Bytes),
    Stderr(Bytes),
    /// How it ended: a `Status`. The last of all.
    Status(Value),
}

/// The two queues.
pub struct Session {
    pub inputs: mpsc::Receiver<Input>,
    pub outputs: mpsc::Sender<Output>,
}

/// The other ends of the two queues.
pub struct Transport {
    pub inputs: mpsc::Sender<Input>,
    pub outputs: mpsc::Receiver<Output>,
}

/// Pieces on their way, in each direction.
const QUEUE: usize = 8;
const CHUNK: usize = 16 << 10;
/// How long what outlives a command may be silent before its words are no longer waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

pub fn session() -> (Session, Transport) {
    let (input, inputs) = mpsc::channel(QUEUE);
    let (outputs, output) = mpsc::channel(QUEUE);
    (Session { inputs, outputs }, Transport { inputs: input, outputs: output })
}

/// How a command ended, as clients read it.
pub fn status(ended: Ended) -> Value {
    match ended.code {
        0 => json!({"metadata": {}, "status": "Success"}),
        code => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
    }
}

/// Something that kept a command from running.
pub fn failure(message: &str) -> Value {
    json!({
        "metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500,
        "details": {"causes": [{"message": message}]},
    })
}

/// Runs a command for somebody until it ends or they do.
pub async fn exec(mut process: Process, streams: Streams, session: Session, stop: CancellationToken) {
    let Session { mut inputs, outputs } = session;
    let Streams { mut stdin, stdout, stderr, terminal } = streams;
    let exited = CancellationToken::new();
    let typing = async {
        while let Some(input) = inputs.recv().await {
            match input {
                Input::Stdin(bytes) => {
                    // Who no longer listens to its input may still have much to say.
                    if let Some(writer) = &mut stdin
                        && writer.write_all(&bytes).await.is_err()
                    {
                        stdin = None;
                    }
                }
                // A terminal has no end: whoever is at it says so in its language.
                Input::End if terminal.is_none() => stdin = None,
                Input::End => {}
                Input::Resize { columns, rows } => {
                    if let Some(terminal) = &terminal {
                        terminal.resize(columns, rows);
                    }
                }
            }
        }
    };
    let saying = async {
        tokio::join!(
            carry(stdout, &outputs, Output::Stdout, &exited),
            carry(stderr, &outputs, Output::Stderr, &exited),
        )
    };
    let life = async {
        let ended = process.wait().await;
        exited.cancel();
        ended
    };
    let work = async { tokio::join!(life, saying).0 };
    let ended = tokio::select! {
        ended = work => Some(ended),
        () = typing => None,
        () = outputs.closed() => None,
        () = stop.cancelled() => None,
    };
    match ended {
        Some(ended) => drop(outputs.send(Output::Status(status(ended))).await),
        // Nobody waits for it any more.
        None => drop(process.terminate(Duration::ZERO).await),
    }
}

/// Carries a stream of a process until it ends, or is silent after the process has ended.
async fn carry(
    from: Option<impl AsyncRead + Unpin>,
    to: &mpsc::Sender<Output>,
    make: fn(Bytes) -> Output,
    exited: &CancellationToken,
) {
    let Some(mut from) = from else { return };
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = tokio::select! {
            biased;
            read = from.read(&mut chunk) => read,
            () = exited.cancelled() => match timeout(LAST_WORDS, from.read(&mut chunk)).await {
                Ok(read) => read,
                Err(_) => return,
            },
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                if to.send(make(Bytes::copy_from_slice(&chunk[..read]))).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Lets somebody see and, where it takes input, speak to a container's own process.
pub async fn attach(instance: Arc<Instance>, session: Session, stop: CancellationToken) {
    let Session { mut inputs, outputs } = session;
    let mut heard = instance.log.listen();
    let stdin = instance.stdin.lock().clone();
    let ended = instance.ended.clone();
    let typing = async {
        let mut stdin = stdin;
        while let Some(input) = inputs.recv().await {
            match input {
                Input::Stdin(bytes) => {
                    if let Some(writer) = &stdin
                        && writer.send(bytes).await.is_err()
                    {
                        stdin = None;
                    }
                }
                Input::End => {
                    stdin = None;
                    if instance.stdin_once {
                        instance.stdin.lock().take();
                    }
                }
                Input::Resize { columns, rows } => {
                    if let Some(terminal) = &instance.terminal {
                        terminal.resize(columns, rows);
                    }
                }
            }
        }
    };
    let saying = async {
        loop {
            let (stream, bytes) = tokio::select! {
                biased;
                heard = heard.recv() => match heard {
                    Ok(heard) => heard,
                    // Too slow for what is said: the rest is in the log.
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return,
                },
                () = ended.cancelled() => return,
            };
            let output = match stream {
                Stream::Out => Output::Stdout(bytes),
                Stream::Err => Output::Stderr(bytes),
            };
            if outputs.send(output).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = saying => {
            let _ = outputs.send(Output::Status(status(Ended { code: 0, signal: None }))).await;
        }
        () = typing => {
            if instance.stdin_once {
                instance.stdin.lock().take();
            }
        }
        () = stop.cancelled() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::process::Start;

    fn run(script: &str) -> (Transport, tokio::task::JoinHandle<()>) {
        let args = ["-c".to_owned(), script.to_owned()];
        let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into();
        let start = Start {
            program: "/bin/sh".into(),
            args: &args,
            env: Some(&env),
            stdin: true,
            ..Start::default()
        };
        let (process, streams) = Process::start(&start).unwrap();
        let (session, transport) = session();
        #[allow(clippy::disallowed_methods)]
        let task = tokio::spawn(exec(process, streams, session, CancellationToken::new()));
        (transport, task)
    }

    async fn all(mut outputs: mpsc::Receiver<Output>) -> (String, String, Value) {
        let (mut out, mut err, mut status) = (Vec::new(), Vec::new(), Value::Null);
        while let Some(output) = outputs.recv().await {
            match output {
                Output::Stdout(bytes) => out.extend_from_slice(&bytes),
                Output::Stderr(bytes) => err.extend_from_slice(&bytes),
                Output::Status(value) => status = value,
            }
        }
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), status)
    }

    #[tokio::test]
    async fn a_command_has_input_output_and_an_end() {
        let (transport, task) = run("cat; echo oops >&2; exit 7");
        transport.inputs.send(Input::Stdin("hello".into())).await.unwrap();
        transport.inputs.send(Input::End).await.unwrap();
        let (out, err, status) = all(transport.outputs).await;
        assert_eq!((out.as_str(), err.as_str()), ("hello", "oops\n"));
        assert_eq!(status["details"]["causes"][0], json!({"reason": "ExitCode", "message": "7"}));
        task.await.unwrap();
        drop(transport.inputs);
    }

    #[tokio::test]
    async fn a_command_ends_with_whoever_wanted_it() {
        for by_input in [true, false] {
            let (transport, task) = run("sleep 300 & echo $!; wait");
            let Transport { inputs, mut outputs } = transport;
            let Some(Output::Stdout(line)) = outputs.recv().await else { panic!("it says its child") };
            let child: i32 = std::str::from_utf8(&line).unwrap().trim().parse().unwrap();
            let rest: Box<dyn std::any::Any + Send> = if by_input {
                drop(inputs);
                Box::new(outputs)
            } else {
                drop(outputs);
                Box::new(inputs)
            };
            task.await.unwrap();
            drop(rest);
            let gone = || {
                let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
                stat.is_empty() || stat.contains(") Z ")
            };
            for _ in 0..500 {
                if gone() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(gone(), "the child of the command is left");
        }
    }

    #[tokio::test]
    async fn what_outlives_a_command_does_not_hold_it_up() {
        let (transport, task) = run("setsid sleep 5 & echo done");
        let (out, _, status) = all(transport.outputs).await;
        assert_eq!((out.as_str(), &status["status"]), ("done\n", &json!("Success")));
        task.await.unwrap();
        drop(transport.inputs);
    }
}
