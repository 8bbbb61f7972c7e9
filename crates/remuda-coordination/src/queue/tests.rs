//! The promises of the queue, under paused time.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::FutureExt;
use tokio::task::JoinSet;

use super::*;

fn queue() -> WorkQueue<&'static str> {
    WorkQueue::new("test", BACKOFF, &QueueMetrics::default())
}

/// What `next` gives without waiting.
fn now<T: Clone + Eq + Hash + Send + 'static>(queue: &WorkQueue<T>) -> Option<T> {
    queue.next().now_or_never().flatten()
}

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_is_worked_on_once() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    queue.add("a");
    assert_eq!(queue.depth(), 2);
    assert_eq!(now(&queue), Some("a"));
    assert_eq!(now(&queue), Some("b"));
    assert_eq!(now(&queue), None);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_worked_on_waits_for_the_end_of_that_work() {
    let queue = queue();
    queue.add("a");
    assert_eq!(now(&queue), Some("a"));
    queue.add("a");
    queue.add("a");
    assert_eq!(now(&queue), None);
    queue.done(&"a");
    assert_eq!(now(&queue), Some("a"));
    queue.done(&"a");
    assert_eq!(now(&queue), None);
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_success_forgets_the_turn_that_a_failure_planned() {
    let queue = queue();
    queue.add("a");
    assert_eq!(now(&queue), Some("a"));
    queue.fail(&"a");
    assert_eq!(queue.next().await, Some("a"), "a failure has another turn");
    queue.fail(&"a");
    queue.add("a");
    assert_eq!(now(&queue), Some("a"));
    queue.succeed(&"a");
    assert_eq!(queue.failures(&"a"), 0);
    tokio::time::advance(Duration::from_secs(5000)).await;
    assert_eq!(now(&queue), None);
}

#[tokio::test(start_paused = true)]
async fn a_later_moment_never_replaces_an_earlier_one() {
    let queue = queue();
    let started = Instant::now();
    queue.add_after("a", Duration::from_secs(5));
    queue.add_after("a", Duration::from_secs(60));
    assert_eq!(queue.next().await, Some("a"));
    assert_eq!(started.elapsed().as_secs(), 5);
    queue.done(&"a");
    assert_eq!(now(&queue), None);
    tokio::time::advance(Duration::from_secs(100)).await;
    assert_eq!(now(&queue), None);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_moment_replaces_a_later_one_for_workers_already_asleep() {
    let queue = queue();
    let started = Instant::now();
    queue.add_after("a", Duration::from_secs(60));
    let sleeper = queue.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { sleeper.next().await });
    tokio::task::yield_now().await;
    queue.add_after("a", Duration::from_secs(1));
    assert_eq!(tasks.join_next().await.unwrap().unwrap(), Some("a"));
    assert_eq!(started.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn failures_of_a_key_double_its_delay_until_a_success() {
    let queue = queue();
    let delays: Vec<u128> = (0..20).map(|_| queue.retry("a").as_millis()).collect();
    assert_eq!(delays[..4], [5, 10, 20, 40]);
    assert_eq!(delays[17], 655_360);
    assert_eq!(delays[18..], [1_000_000, 1_000_000]);
    assert_eq!(queue.retry("b").as_millis(), 5);
    queue.forget(&"a");
    assert_eq!(queue.retry("a").as_millis(), 5);
    assert_eq!(BACKOFF.delay(u32::MAX), Duration::from_secs(1000));
}

#[tokio::test(start_paused = true)]
async fn a_better_priority_overtakes_and_a_worse_one_does_not_push_back() {
    let queue = queue();
    queue.add_with("first", Priority::Low);
    queue.add_with("second", Priority::Low);
    queue.add("third");
    queue.add_with("second", Priority::High);
    queue.add_with("third", Priority::Low);
    assert_eq!((now(&queue), now(&queue), now(&queue)), (Some("second"), Some("third"), Some("first")));
}

#[tokio::test(start_paused = true)]
async fn draining_waits_for_work_and_drops_what_waits() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    queue.add_after("c", Duration::from_secs(1));
    assert_eq!(now(&queue), Some("a"));
    let mut draining = Box::pin(queue.drain());
    assert!(draining.as_mut().now_or_never().is_none());
    queue.add("d");
    queue.add("a");
    queue.done(&"a");
    draining.await;
    assert_eq!(queue.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn many_workers_never_share_a_key_and_lose_none() {
    const KEYS: usize = 50;
    const ROUNDS: usize = 40;
    let queue: WorkQueue<usize> = WorkQueue::new("many", BACKOFF, &QueueMetrics::default());
    let held: Arc<Mutex<HashSet<usize>>> = Arc::default();
    let done = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for worker in 0..8_usize {
        let (queue, held, done) = (queue.clone(), held.clone(), done.clone());
        workers.spawn(async move {
            while let Some(key) = queue.next().await {
                assert!(held.lock().insert(key), "{key} is worked on twice at once");
                tokio::time::sleep(Duration::from_millis((key * 7 + worker) as u64 % 5)).await;
                held.lock().remove(&key);
                done.fetch_add(1, Ordering::Relaxed);
                queue.done(&key);
            }
        });
    }
    for round in 0..ROUNDS {
        for key in 0..KEYS {
            match (round + key) % 3 {
                0 => queue.add(key),
                1 => queue.add_after(key, Duration::from_millis(key as u64 % 11)),
                _ => drop(queue.retry(key)),
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(2000)).await;
    assert!(queue.is_idle());
    assert!(done.load(Ordering::Relaxed) >= KEYS);
    queue.drain().await;
    while let Some(worker) = workers.join_next().await {
        worker.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_between_threads() {
    const KEYS: usize = 2000;
    let queue: WorkQueue<usize> = WorkQueue::new("threads", BACKOFF, &QueueMetrics::default());
    let done = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (queue, done) = (queue.clone(), done.clone());
        tasks.spawn(async move {
            while let Some(key) = queue.next().await {
                done.fetch_add(1, Ordering::Relaxed);
                queue.done(&key);
            }
        });
    }
    for part in 0..4 {
        let queue = queue.clone();
        tasks.spawn(async move {
            for key in (part..KEYS).step_by(4) {
                if key % 5 == 0 {
                    queue.add_after(key, Duration::from_millis(key as u64 % 3));
                } else {
                    queue.add(key);
                }
                if key % 64 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    let all = async {
        while done.load(Ordering::Relaxed) < KEYS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("every key is worked on");
    queue.drain().await;
    tasks.join_all().await;
    assert_eq!(done.load(Ordering::Relaxed), KEYS);
}

#[tokio::test(start_paused = true)]
async fn metrics_have_the_names_of_client_go() {
    let metrics = QueueMetrics::default();
    let queue = WorkQueue::new("machine", BACKOFF, &metrics);
    queue.add("a");
    queue.add("b");
    queue.retry("c");
    assert_eq!(now(&queue), Some("a"));
    tokio::time::advance(Duration::from_secs(3)).await;
    let mut registry = prometheus_client::registry::Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"workqueue_depth{name="machine",controller="machine"} 1"#,
        r#"workqueue_adds_total{name="machine",controller="machine"} 2"#,
        r#"workqueue_retries_total{name="machine",controller="machine"} 1"#,
        r#"workqueue_unfinished_work_seconds{name="machine",controller="machine"} 3.0"#,
        r#"workqueue_longest_running_processor_seconds{name="machine",controller="machine"} 3.0"#,
        r#"workqueue_longest_waiting_seconds{name="machine",controller="machine"} 3.0"#,
        r#"workqueue_queue_duration_seconds_count{name="machine",controller="machine"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}
