//! Several controllers as one.

use futures::future::BoxFuture;
use tokio::task::JoinSet;

/// A controller by its name.
pub type Named = (&'static str, BoxFuture<'static, ()>);

/// Runs controllers until all have ended, without those of the names in `leave`. When one of them panics the others
/// are ended and it panics too: whoever started them starts all again, none of them is missing unnoticed.
///
/// The future is a box so that what runs is compiled where it is written, and not once in each program that uses it.
pub fn run_all(
    leave: &[&'static str],
    controllers: impl IntoIterator<Item = Named>,
) -> BoxFuture<'static, ()> {
    let controllers = controllers.into_iter().filter(|(name, _)| !leave.contains(name));
    let controllers: Vec<_> = controllers.map(|(_, controller)| controller).collect();
    Box::pin(async move {
        let mut tasks: JoinSet<()> = controllers.into_iter().collect();
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::{future::pending, panic::AssertUnwindSafe, sync::Arc};

    use futures::FutureExt;
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn all_run_but_those_left_to_others() {
        let ran: Arc<Mutex<Vec<&str>>> = Arc::default();
        let controller = |name: &'static str| -> Named {
            let ran = ran.clone();
            (name, Box::pin(async move { ran.lock().push(name) }))
        };
        run_all(&["b"], ["a", "b", "c"].map(controller)).await;
        ran.lock().sort_unstable();
        assert_eq!(*ran.lock(), ["a", "c"]);
    }

    #[tokio::test]
    async fn one_that_panics_ends_all() {
        let waits: Named = ("waits", Box::pin(pending()));
        let fails: Named = ("fails", Box::pin(async { panic!("of its own") }));
        let ended = AssertUnwindSafe(run_all(&[], [waits, fails])).catch_unwind().await;
        assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"of its own"));
    }
}
