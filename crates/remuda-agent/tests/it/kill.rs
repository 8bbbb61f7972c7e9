//! Killing the agent at random points must never run an instruction twice, nor lose one.

use std::{path::Path, process::Stdio, sync::Arc, time::Duration};

use remuda_agent::decide::text;
use remuda_plan::{key, sha256_hex};
use serde_json::json;

use crate::{
    api::{Api, configure},
    process::agent_arguments,
};

fn plan(name: &str, log: &Path) -> String {
    let instruction = |index: usize| {
        let script = format!("echo {name}-{index} >> {}; sleep 0.0{index}; echo done", log.display());
        json!({"name": format!("i{index}"), "command": "sh", "args": ["-c", script], "saveOutput": index == 2})
    };
    json!({"instructions": (0..4).map(instruction).collect::<Vec<_>>()}).to_string()
}

/// Delivers plans one after the other while an agent is started and killed, until `kills` are done.
async fn torment(stateful: bool, kills: usize) {
    let seed: u64 = rand::random();
    let mut state = seed;
    let mut roll = move |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let api = Api::new();
    let server = api.serve(None).await;
    let config = configure(dir.path(), &format!("http://{}", server.address), "");
    let mut killed = 0;
    let mut plans = 0;
    while killed < kills {
        let name = format!("plan{plans}");
        let content = plan(&name, &log);
        deliver(&api, &content, stateful).await;
        plans += 1;
        let sum = sha256_hex(content.as_bytes());
        loop {
            let mut agent = tokio::process::Command::new(std::env::current_exe().unwrap())
                .args(agent_arguments(&config))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let patience = Duration::from_millis(20 + roll(if killed < kills { 250 } else { 20_000 }));
            let done = async {
                api.wait("the plan to be applied", |data| {
                    text(data, key::APPLIED_CHECKSUM) == sum
                        && (!stateful || text(data, key::PLAN_STATE) == "succeeded")
                })
                .await
            };
            let is_done = tokio::time::timeout(patience, done).await.is_ok();
            agent.kill().await.unwrap();
            killed += 1;
            if is_done {
                break;
            }
        }
    }
    let text = std::fs::read_to_string(&log).unwrap();
    let expected: String =
        (0..plans).flat_map(|plan| (0..4).map(move |index| format!("plan{plan}-{index}\n"))).collect();
    assert_eq!(text, expected, "seed {seed}, {killed} kills");
    let data = api.data().await;
    assert_eq!(text_of(&data, key::SUCCESS_COUNT), plans.to_string());
}

fn text_of(data: &remuda_agent::decide::Data, name: &str) -> String {
    text(data, name).to_owned()
}

async fn deliver(api: &Arc<Api>, content: &str, stateful: bool) {
    api.change("uid-1", |data| {
        data.insert(key::PLAN.into(), content.into());
        if stateful {
            data.insert(key::PLAN_STATE.into(), b"pending".to_vec());
        }
    })
    .await;
}

#[tokio::test]
async fn forty_random_kills_run_every_instruction_exactly_once() {
    torment(true, 40).await;
}

#[tokio::test]
async fn forty_random_kills_under_an_older_server_run_every_instruction_exactly_once() {
    torment(false, 40).await;
}
