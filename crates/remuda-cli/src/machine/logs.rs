//! `remuda machine logs`.

use crate::{
    api,
    evidence::tail,
    failure::{Code, Failure},
    follow::{Follower, pause},
    gather::Depth,
    session::Session,
};

pub(super) async fn run(
    session: &Session,
    name: &str,
    follow: bool,
    lines: Option<usize>,
) -> Result<(), Failure> {
    api::check_name(name)?;
    let mut follower = Follower::default();
    let mut first = true;
    loop {
        let log = session.hooks.logs.read(&session.client, &session.namespace, name).await?;
        if log.is_none() && first {
            // Says which machines there are, if this is none.
            super::existing(session, name, Depth::Objects).await?;
            if !follow {
                let failure =
                    Failure::new(Code::NotFound, format!("nothing has been written about machine {name}"));
                let hint = format!("no job has run for it yet, or its log was removed; remuda why {name}");
                return Err(failure.hint(hint));
            }
        }
        let new = follower.added(&log.unwrap_or_default().whole());
        match lines.filter(|_| first) {
            Some(lines) => session.out.line(&tail(&new, lines)),
            None => session.out.text(&new),
        }
        if !follow {
            return Ok(());
        }
        first = false;
        pause().await;
    }
}
