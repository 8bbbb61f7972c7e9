//! A whole controller, as the others are written.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use remuda_control::{
    Action, Controller, Ctx, Error, Scope, drive,
    write::{ApplySet, write_status},
};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::world::{Thing, ThingStatus, World, thing, until};

const SET: &str = "test.remuda/thing";

/// Gives each Thing a Secret that holds its size.
async fn run(ctx: Arc<Ctx>, stop: CancellationToken) {
    let secrets = ctx.informers.of::<Secret>(Scope::labels(SET));
    let controller = Controller::<Thing>::new("thing", &ctx).owns(&secrets);
    drive(controller, reconcile, ctx, stop).await;
}

async fn reconcile(thing: Arc<Thing>, ctx: Arc<Ctx>) -> Result<Action, Error> {
    let (secret, status) = decide(&thing);
    act(&ctx, &thing, secret, status).await?;
    Ok(Action::AwaitChange)
}

fn decide(thing: &Thing) -> (Option<Secret>, ThingStatus) {
    let status = ThingStatus { seen: Some(thing.spec.size), ..ThingStatus::default() };
    let mut secret = Secret::default();
    secret.metadata.name = Some(format!("{}-size", thing.name_any()));
    secret.string_data = Some([("size".to_owned(), thing.spec.size.to_string())].into());
    ((thing.spec.size > 0).then_some(secret), status)
}

async fn act(ctx: &Ctx, thing: &Thing, secret: Option<Secret>, status: ThingStatus) -> Result<(), Error> {
    let mut set = ApplySet::new(ctx, thing, &(), (SET, &thing.name_any()))?;
    set.known(&ctx.informers.of::<Secret>(Scope::labels(SET)))?;
    if let Some(secret) = secret {
        set.add(&secret)?;
    }
    set.apply().await?;
    let things: Api<Thing> = Api::namespaced(ctx.client.clone(), &thing.namespace().unwrap_or_default());
    write_status(ctx, &things, thing, &status).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_controller_keeps_the_world_as_decided() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(run(ctx.clone(), stop.clone()));
    let (things, secrets) = (world.things(), Api::<Secret>::namespaced(world.client(), "default"));
    things.create(&PostParams::default(), &thing("a")).await.unwrap();
    for size in [5, 7, 0] {
        let patch = Patch::Merge(json!({"spec": {"size": size}}));
        things.patch("a", &PatchParams::default(), &patch).await.unwrap();
        until(&format!("size {size}"), async || {
            let secret = secrets.get_opt("a-size").await.unwrap();
            let held =
                secret.map(|secret| String::from_utf8(secret.data.unwrap()["size"].0.clone()).unwrap());
            let status = things.get("a").await.unwrap().status.unwrap_or_default();
            held == (size > 0).then(|| size.to_string()) && status.seen == Some(size)
        })
        .await;
    }
    // Restored when somebody takes it away.
    let patch = Patch::Merge(json!({"spec": {"size": 9}}));
    things.patch("a", &PatchParams::default(), &patch).await.unwrap();
    until("the secret is there", async || secrets.get_opt("a-size").await.unwrap().is_some()).await;
    let first = secrets.get("a-size").await.unwrap().uid();
    secrets.delete("a-size", &Default::default()).await.unwrap();
    until("the secret is there again", async || {
        secrets.get_opt("a-size").await.unwrap().is_some_and(|secret| secret.uid() != first)
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = world.requests().len();
    tokio::time::sleep(Duration::from_secs(250)).await;
    assert_eq!(world.requests().len(), before, "a settled controller asks nothing");
    stop.cancel();
    tasks.join_all().await;
    ctx.stop().await;
}
