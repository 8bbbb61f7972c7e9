//! One question to etcd for all who ask at the same time.

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{Error, Revision};

type Answer = watch::Receiver<Option<Result<Revision, Error>>>;

/// Lets concurrent callers share a request. A caller never gets the answer to a request that
/// began before it asked: that answer might be older than what the caller has seen elsewhere.
#[derive(Default)]
pub(super) struct Barrier {
    /// Those who wait for the next request.
    gathering: Mutex<Option<Answer>>,
    under_way: tokio::sync::Mutex<()>,
}

impl Barrier {
    pub(super) async fn ask<F>(&self, request: impl Fn() -> F) -> Result<Revision, Error>
    where
        F: Future<Output = Result<Revision, Error>>,
    {
        loop {
            let (sender, mut answer) = {
                let mut gathering = self.gathering.lock();
                match &*gathering {
                    Some(answer) => (None, answer.clone()),
                    None => {
                        let (sender, answer) = watch::channel(None);
                        *gathering = Some(answer.clone());
                        (Some(sender), answer)
                    }
                }
            };
            if let Some(sender) = sender {
                // Dropped before the sender: who finds the sender gone finds a free place.
                let leading = Leading { barrier: self, answer: &answer };
                let _under_way = self.under_way.lock().await;
                drop(leading);
                let result = request().await;
                let _ = sender.send(Some(result.clone()));
                return result;
            }
            if let Ok(result) = answer.wait_for(Option::is_some).await
                && let Some(result) = &*result
            {
                return result.clone();
            }
        }
    }
}

/// Closes the gathering when the request begins, or when its leader gives up.
struct Leading<'a> {
    barrier: &'a Barrier,
    answer: &'a Answer,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut gathering = self.barrier.gathering.lock();
        if gathering.as_ref().is_some_and(|answer| answer.same_channel(self.answer)) {
            *gathering = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        time::Duration,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn callers_share_requests_but_not_old_answers() {
        let barrier = Barrier::default();
        let requests = AtomicU64::new(0);
        let request = || async {
            let number = requests.fetch_add(1, Ordering::Relaxed) + 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(number)
        };
        let first = barrier.ask(request);
        let later = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            futures::future::join_all((0..100).map(|_| barrier.ask(request))).await
        };
        // One that gives up while it leads does not stop the others.
        let quitter = async {
            tokio::time::sleep(Duration::from_micros(500)).await;
            tokio::time::timeout(Duration::from_millis(2), barrier.ask(request)).await
        };
        let (first, later, quitter) = tokio::join!(first, later, quitter);
        assert_eq!(first, Ok(1));
        assert!(quitter.is_err());
        assert!(later.iter().all(|answer| *answer == Ok(2)), "{later:?}");
        assert_eq!(requests.load(Ordering::Relaxed), 2);
    }
}
