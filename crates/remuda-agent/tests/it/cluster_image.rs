//! The image of the cluster agent on its way to the distribution.

use remuda_oci::Digest;
use serde_json::json;

use crate::remote::{World, state_is};

const FILE: &str = "k3s/agent/images/remuda-cluster-agent.tar";

/// A plan that says whether the image is there when the distribution is installed.
fn plan(world: &World, mark: &str) -> String {
    let (data, log) = (world.path("k3s"), world.path("log"));
    let script = format!("cat {data}/agent/images/*.tar >> {log} || echo none >> {log}; echo {mark}");
    json!({"instructions": [{
        "name": "install", "command": "sh", "args": ["-c", script], "env": [format!("K3S_DATA_DIR={data}")],
    }]})
    .to_string()
}

impl World {
    async fn applies(&self, mark: &str) {
        self.deliver(&plan(self, mark)).await;
        let revision = mark.to_owned();
        let done = move |data: &remuda_agent::decide::Data| {
            state_is("succeeded")(data)
                && data.get("plan-revision").is_some_and(|text| text == revision.as_bytes())
        };
        self.api.wait("success", done).await;
    }

    async fn offers(&self, image: &str, announced: &str) {
        self.api.state.lock().await.image =
            Some((image.into(), Digest::of(announced.as_bytes()).hex().to_owned()));
    }
}

#[tokio::test]
async fn the_image_is_there_before_the_distribution_is_installed() {
    let world = World::new().await;
    world.api.change("uid-1", |_| {}).await;
    world.offers("one", "one").await;
    world.applies("1").await;
    assert_eq!(world.read("log"), "one");
    // What is there is not sent again, and another takes its place.
    world.applies("2").await;
    assert_eq!(world.read("log"), "oneone");
    world.offers("two", "two").await;
    world.applies("3").await;
    assert_eq!((world.read("log").as_str(), world.read(FILE).as_str()), ("oneonetwo", "two"));
    let known = format!("\"{}\"", Digest::of(b"one").hex());
    assert_eq!(world.api.state.lock().await.images, [String::new(), known.clone(), known]);
}

#[tokio::test]
async fn a_plan_does_not_wait_for_an_image_that_does_not_come() {
    let world = World::new().await;
    world.api.change("uid-1", |_| {}).await;
    // A server that has none.
    world.applies("1").await;
    // One that sends something else than it says.
    world.offers("cut", "whole").await;
    world.applies("2").await;
    assert_eq!(world.read("log"), "none\nnone\n");
    let left = std::fs::read_dir(world.path("k3s/agent/images")).unwrap().count();
    assert_eq!(left, 0, "what is not whole does not stay");
}
