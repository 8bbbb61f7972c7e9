use std::convert::Infallible;

use http::{Request, Response};
use kube::Client;
use remuda_auth::{
    identity::User,
    rbac::{
        object::Kind as RbacKind,
        policy::{Policy, RbacChange},
    },
};
use remuda_control::{bounded::Room, clock::SystemClock};
use serde_json::json;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::{
    ListApi, ListApiOptions,
    index::tests::index,
    kind::Catalogue,
    rights::Rights,
    show::Base,
    subscribe::{Said, message::Wish, queue},
};

/// A socket of a user who may read what `names` say; all if there are none.
fn socket(names: &[&str]) -> Socket {
    let client = Client::new(
        tower::service_fn(|_: Request<kube::client::Body>| async {
            Ok::<_, Infallible>(Response::new(kube::client::Body::empty()))
        }),
        "default",
    );
    let policy = Arc::new(Policy::new());
    let rule = json!({"apiGroups": [""], "resources": [""], "verbs": ["get"], "resourceNames": names});
    policy
        .apply(RbacChange::Put(RbacKind::ClusterRole, &json!({"metadata": {"name": "r"}, "rules": [rule]})));
    let bound = json!({
        "metadata": {"name": "r"}, "subjects": [{"kind": "User", "name": "ann"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
    });
    policy.apply(RbacChange::Put(RbacKind::ClusterRoleBinding, &bound));
    let api = ListApi::new(ListApiOptions {
        client: client.clone(),
        policy: policy.clone(),
        clock: Arc::new(SystemClock),
        part_of: |_, _| None,
        nodes: None,
        credentials: None,
        people: None,
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
    });
    let visit = Visit {
        base: Base { api: "https://h".to_owned() },
        rights: Rights::Policy(policy, Arc::new(User::new("ann", Vec::<String>::new()))),
        client,
        catalogue: Arc::new(Catalogue::default()),
        source: Source::Cluster(Room::new(1 << 20)),
        part_of: |_, _| None,
        user: "ann".to_owned(),
        now: 0,
    };
    Socket { api: api.shared().clone(), visit }
}

fn wish(more: &str) -> Wish {
    let Some(Said::Start(wish, _)) = Said::parse(&format!(r#"{{"resourceType":"thing"{more}}}"#)) else {
        panic!()
    };
    wish
}

/// Names of messages, and ids of their objects.
fn told(queue: &mut queue::Queue) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(text) = queue.try_recv() {
        let message: Value = serde_json::from_str(&text).unwrap();
        let id = message["data"]["id"].as_str().unwrap_or_default();
        told.push(format!("{} {id}", message["name"].as_str().unwrap()));
    }
    told
}

#[tokio::test]
async fn changes_are_told_to_who_may_read_them() {
    let (socket, wish, index) = (socket(&["mine"]), wish(""), index());
    let (out, mut queue) = queue::channel(64);
    let labels = LabelSelector::everything();
    let told_to =
        Told { socket: &socket, visit: &socket.visit, kind: &index.kind, wish: &wish, labels: &labels };
    index.changed("mine", 11);
    index.changed("other", 12);
    let following = follow(&told_to, &index, Some(10), &out);
    let changing = async {
        index.changed("other", 13);
        index.changed("mine", 14);
        index.stop.cancel();
    };
    let (ended, ()) = tokio::join!(following, changing);
    assert!(matches!(ended, Ok(None)));
    let told = told(&mut queue);
    assert_eq!(told[..2], ["resource.start ".to_owned(), "resource.create mine".to_owned()]);
    assert!(told.iter().all(|line| !line.contains("other")), "{told:?}");
}

/// A client that does not read is not waited for, and nothing is kept for it beyond its queue and the ring.
#[tokio::test]
async fn a_client_that_stands_still_is_told_that_it_fell_behind() {
    let (socket, wish, index) = (socket(&[]), wish(""), index());
    let (out, mut queue) = queue::channel(2);
    let labels = LabelSelector::everything();
    let told_to =
        Told { socket: &socket, visit: &socket.visit, kind: &index.kind, wish: &wish, labels: &labels };
    let following = async {
        let ended = follow(&told_to, &index, None, &out).await;
        drop(out);
        ended
    };
    let changing = async {
        tokio::task::yield_now().await;
        for revision in 11..5000 {
            index.changed("thing", revision);
        }
        tokio::task::yield_now().await;
        let mut heard = 0;
        while queue.recv().await.is_some() {
            heard += 1;
        }
        heard
    };
    let (ended, heard) = tokio::join!(following, changing);
    let Ok(Some(error)) = ended else { panic!("it goes on") };
    assert_eq!(error.code(), "Expired", "{error}");
    assert!(error.to_string().starts_with("too old resource version"), "{error}");
    assert!(heard < 10, "{heard} messages were kept");
}

#[tokio::test(start_paused = true)]
async fn notices_without_data_are_debounced() {
    let (socket, index) = (socket(&[]), index());
    let wish = wish(r#","mode":"resource.changes","debounceMs":4000"#);
    let (out, mut queue) = queue::channel(64);
    let labels = LabelSelector::everything();
    let told_to =
        Told { socket: &socket, visit: &socket.visit, kind: &index.kind, wish: &wish, labels: &labels };
    let following = follow(&told_to, &index, None, &out);
    let changing = async {
        for revision in 11..100 {
            sleep(Duration::from_millis(100)).await;
            index.changed("thing", revision);
        }
        sleep(Duration::from_secs(20)).await;
        index.stop.cancel();
    };
    let (ended, ()) = tokio::join!(following, changing);
    assert!(matches!(ended, Ok(None)));
    let told = told(&mut queue);
    // At once, then once in four seconds of nine, and once for the last changes.
    assert_eq!(told.len(), 1 + 1 + 3, "{told:?}");
}

/// Rancher's dashboard asks for the newest revision of the objects it has. Of a kind that has been quiet that is from
/// before the index was made: refused, it lists and asks for the same one again, for ever.
#[tokio::test]
async fn notices_without_data_begin_at_any_revision() {
    let (socket, index) = (socket(&[]), index());
    let labels = LabelSelector::everything();
    for (mode, begins) in [(r#","mode":"resource.changes""#, true), ("", false)] {
        let wish = wish(mode);
        let (out, mut queue) = queue::channel(64);
        let told_to =
            Told { socket: &socket, visit: &socket.visit, kind: &index.kind, wish: &wish, labels: &labels };
        let ended = tokio::select! {
            biased;
            ended = follow(&told_to, &index, Some(1), &out) => Some(ended),
            () = sleep(Duration::from_millis(50)) => None,
        };
        assert_eq!(ended.is_none(), begins, "{mode}");
        let expected: &[&str] = if begins { &["resource.start ", "resource.changes "] } else { &[] };
        assert_eq!(told(&mut queue), expected, "{mode}");
    }
}
