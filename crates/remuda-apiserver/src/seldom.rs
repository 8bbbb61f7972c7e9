//! What happens seldom in a task that is woken often.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::task::AtomicWaker;

/// A future that is polled only when it was woken itself, not whenever its task is: asking it costs one look at
/// a flag. A timer or a cancellation asked the usual way costs a lock and a registration each time.
pub(crate) struct Seldom<F> {
    future: F,
    bell: Arc<Bell>,
    /// Rings the bell.
    rope: Waker,
    /// Who hears it.
    task: Waker,
}

struct Bell {
    rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Release);
        self.task.wake();
    }
}

impl<F: Future + Unpin> Seldom<F> {
    pub(crate) fn new(future: F) -> Self {
        let bell = Arc::new(Bell { rung: AtomicBool::new(true), task: AtomicWaker::new() });
        Self { future, rope: Waker::from(bell.clone()), bell, task: Waker::noop().clone() }
    }

    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<F::Output> {
        let same = self.task.will_wake(context.waker());
        if same && !self.bell.rung.load(Acquire) {
            return Poll::Pending;
        }
        if !same {
            self.task.clone_from(context.waker());
        }
        // Before the flag is looked at: who rings later finds the task.
        self.bell.task.register(context.waker());
        if !self.bell.rung.swap(false, AcqRel) {
            return Poll::Pending;
        }
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&self.rope))
    }

    /// The future, to be changed; it is polled next time.
    pub(crate) fn change(&mut self) -> &mut F {
        self.bell.rung.store(true, Release);
        &mut self.future
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use super::*;

    struct Counted<F> {
        future: F,
        polls: usize,
    }

    impl<F: Future + Unpin> Future for Counted<F> {
        type Output = F::Output;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
            self.polls += 1;
            Pin::new(&mut self.future).poll(context)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_polled_when_it_was_woken_and_not_otherwise() {
        let timer = || Box::pin(tokio::time::sleep(Duration::from_secs(1)));
        let mut seldom = Seldom::new(Counted { future: timer(), polls: 0 });
        for _ in 0..10 {
            let pending = poll_fn(|context| Poll::Ready(seldom.poll(context).is_pending())).await;
            assert!(pending);
        }
        assert_eq!(seldom.future.polls, 1);
        poll_fn(|context| seldom.poll(context)).await;
        assert_eq!(seldom.future.polls, 2);
        seldom.change().future = timer();
        poll_fn(|context| seldom.poll(context)).await;
        assert_eq!(seldom.future.polls, 4);
    }

    #[tokio::test]
    async fn it_wakes_the_task_that_asked_last() {
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let mut seldom = Seldom::new(receiver);
        poll_fn(|context| Poll::Ready(seldom.poll(context).is_pending())).await;
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { poll_fn(|context| seldom.poll(context)).await });
        tokio::task::yield_now().await;
        sender.send(()).unwrap();
        tasks.join_next().await.unwrap().unwrap().unwrap();
    }
}
