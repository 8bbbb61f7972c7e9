//! Waking those who wait for the same thing, again and again.

use std::{
    sync::Arc,
    task::{Context, Waker},
};

use parking_lot::Mutex;

/// Whom to wake. Who listens stays registered from ring to ring: a thousand watchers woken by one write are not
/// a thousand registrations to take out and put back.
#[derive(Default)]
pub(crate) struct Bell(Mutex<Places>);

#[derive(Default)]
struct Places {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Bell {
    pub(crate) fn ring(&self) {
        let wakers: Vec<Waker> = {
            let places = self.0.lock();
            if places.wakers.len() == places.free.len() {
                return;
            }
            let mut wakers = Vec::with_capacity(places.wakers.len() - places.free.len());
            wakers.extend(places.wakers.iter().flatten().cloned());
            wakers
        };
        // Without the lock: what a waker does is nobody's business here.
        for waker in wakers {
            waker.wake();
        }
    }
}

/// A place at a bell, left when dropped.
pub(crate) struct Listener {
    bell: Arc<Bell>,
    index: Option<usize>,
    waker: Waker,
}

impl Listener {
    pub(crate) fn new(bell: Arc<Bell>) -> Self {
        Self { bell, index: None, waker: Waker::noop().clone() }
    }

    /// Every ring from now on wakes this task. To be called before looking whether there is still a need to wait.
    pub(crate) fn listen(&mut self, context: &Context<'_>) {
        if self.index.is_some() && self.waker.will_wake(context.waker()) {
            return;
        }
        self.waker.clone_from(context.waker());
        let waker = Some(self.waker.clone());
        let mut places = self.bell.0.lock();
        // Dropped without the lock.
        let _old = match self.index {
            Some(index) => std::mem::replace(&mut places.wakers[index], waker),
            None => {
                let index = match places.free.pop() {
                    Some(index) => {
                        places.wakers[index] = waker;
                        index
                    }
                    None => {
                        places.wakers.push(waker);
                        places.wakers.len() - 1
                    }
                };
                self.index = Some(index);
                None
            }
        };
        drop(places);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        let mut places = self.bell.0.lock();
        let waker = places.wakers[index].take();
        places.free.push(index);
        drop(places);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn who_listens_is_woken_by_every_ring_until_it_leaves() {
        let bell = Arc::new(Bell::default());
        let counts: [Arc<Count>; 3] = std::array::from_fn(|_| Arc::default());
        let wakers = counts.clone().map(Waker::from);
        let mut listeners = wakers.each_ref().map(|waker| {
            let mut listener = Listener::new(bell.clone());
            listener.listen(&Context::from_waker(waker));
            listener
        });
        bell.ring();
        bell.ring();
        // Another task waits now.
        listeners[0].listen(&Context::from_waker(&wakers[2]));
        let [_first, second, _third] = listeners;
        drop(second);
        bell.ring();
        assert_eq!(counts.each_ref().map(|count| count.0.load(Relaxed)), [2, 2, 4]);
        let mut late = Listener::new(bell.clone());
        late.listen(&Context::from_waker(&wakers[1]));
        bell.ring();
        assert_eq!(counts.each_ref().map(|count| count.0.load(Relaxed)), [2, 3, 6]);
    }
}
