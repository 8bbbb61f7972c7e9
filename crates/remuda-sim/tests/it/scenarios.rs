//! Every file in `scenarios/` tells what happens. `UPDATE_GOLDEN=1` writes the files anew.

use std::{fs, path::Path, sync::Arc};

use remuda_sim::{
    Contract,
    scenario::{Script, Stage},
};

use crate::world::{Capi, clock, world};

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(format!("{name}.txt"));
    let text = fs::read_to_string(&path).unwrap();
    let script = Script::parse(&text).unwrap();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let narratives = runtime.block_on(async {
        let contract =
            if text.contains("# contract v1beta1") { Contract::V1Beta1 } else { Contract::V1Beta2 };
        let api = world(contract).await;
        let mut stage = Stage::new(api.client(), clock(), Arc::new(Capi(api.client()))).await;
        stage.options_mut().contract = contract;
        let narratives = stage.play(&script).await.unwrap_or_else(|error| panic!("{name}.txt: {error}"));
        stage.end().await;
        api.down().await;
        narratives
    });
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, Script::rewrite(&text, &narratives)).unwrap();
        return;
    }
    for (block, told) in script.blocks.iter().zip(&narratives) {
        let (line, command) = block.commands.last().unwrap();
        assert_eq!(*told, block.expected, "{name}.txt, after {command:?} in line {line}");
    }
}

macro_rules! scenarios {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*

        #[test]
        fn every_file_is_played() {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
            let mut files: Vec<String> = fs::read_dir(directory)
                .unwrap()
                .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            files.sort();
            assert_eq!(files, [$(stringify!($name)),*]);
        }
    };
}

scenarios! {
    adoption
    contract_v1beta1
    control_plane
    deletion
    deletion_hooks
    drain_budget
    drain_rules
    failing_servers
    health_check
    in_place
    lost_node
    on_delete
    orphaning
    pause
    quick_start
    resource_set
    restart
    rolling_update
    rollout_after
    scale
    unreachable
}
