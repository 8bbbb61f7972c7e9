//! `remuda machine logs`.

use std::time::Duration;

use crate::{
    api,
    failure::{Code, Failure},
    gather::Depth,
    session::Session,
    why,
};

pub(super) async fn run(
    session: &Session,
    name: &str,
    follow: bool,
    tail: Option<usize>,
) -> Result<(), Failure> {
    api::check_name(name)?;
    let mut printed = 0;
    let mut first = true;
    loop {
        let log = session.hooks.logs.read(&session.client, &session.namespace, name).await?;
        let Some(log) = log else {
            if first {
                // Says which machines there are, if this is none.
                super::existing(session, name, Depth::Objects).await?;
                if !follow {
                    let failure = Failure::new(
                        Code::NotFound,
                        format!("nothing has been written about machine {name}"),
                    );
                    return Err(failure.hint(format!(
                        "no job has run for it yet, or its log was removed; remuda why {name}"
                    )));
                }
            }
            first = false;
            pause().await?;
            continue;
        };
        // A log that got shorter is another log.
        if log.len() < printed {
            printed = 0;
        }
        let new = log.get(printed..).unwrap_or(&log);
        match (printed, tail) {
            (0, Some(lines)) => session.out.line(&why::tail(new, lines)),
            _ if !new.is_empty() => session.out.text(new),
            _ => {}
        }
        printed = log.len();
        first = false;
        if !follow {
            return Ok(());
        }
        pause().await?;
    }
}

async fn pause() -> Result<(), Failure> {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(1)) => Ok(()),
        _ = tokio::signal::ctrl_c() => Err(Failure::silent(Code::Interrupted)),
    }
}
