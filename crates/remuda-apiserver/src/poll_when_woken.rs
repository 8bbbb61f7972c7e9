//! A future that is seldom ready, in a task that is woken often.

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
pub(crate) struct PollWhenWoken<F> {
    future: F,
    woken: Arc<WokenFlag>,
    /// Sets the flag and wakes the task.
    waker: Waker,
    /// The task that polled last.
    task: Waker,
}

struct WokenFlag {
    set: AtomicBool,
    task: AtomicWaker,
}

impl Wake for WokenFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set.store(true, Release);
        self.task.wake();
    }
}

impl<F: Future + Unpin> PollWhenWoken<F> {
    pub(crate) fn new(future: F) -> Self {
        let woken = Arc::new(WokenFlag { set: AtomicBool::new(true), task: AtomicWaker::new() });
        Self { future, waker: Waker::from(woken.clone()), woken, task: Waker::noop().clone() }
    }

    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<F::Output> {
        let same = self.task.will_wake(context.waker());
        if same && !self.woken.set.load(Acquire) {
            return Poll::Pending;
        }
        if !same {
            self.task.clone_from(context.waker());
        }
        // Registered before the flag is read: a wake-up between the two is not lost.
        self.woken.task.register(context.waker());
        if !self.woken.set.swap(false, AcqRel) {
            return Poll::Pending;
        }
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&self.waker))
    }

    /// The future, to be changed; it is polled next time.
    pub(crate) fn change(&mut self) -> &mut F {
        self.woken.set.store(true, Release);
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
        let mut polled = PollWhenWoken::new(Counted { future: timer(), polls: 0 });
        for _ in 0..10 {
            let pending = poll_fn(|context| Poll::Ready(polled.poll(context).is_pending())).await;
            assert!(pending);
        }
        assert_eq!(polled.future.polls, 1);
        poll_fn(|context| polled.poll(context)).await;
        assert_eq!(polled.future.polls, 2);
        polled.change().future = timer();
        poll_fn(|context| polled.poll(context)).await;
        assert_eq!(polled.future.polls, 4);
    }

    #[tokio::test]
    async fn it_wakes_the_task_that_asked_last() {
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let mut polled = PollWhenWoken::new(receiver);
        poll_fn(|context| Poll::Ready(polled.poll(context).is_pending())).await;
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { poll_fn(|context| polled.poll(context)).await });
        tokio::task::yield_now().await;
        sender.send(()).unwrap();
        tasks.join_next().await.unwrap().unwrap().unwrap();
    }
}
