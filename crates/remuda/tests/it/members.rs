//! What owners, members, viewers and strangers see of clusters on the command line, and which server commands go to.

use std::{fs, os::unix::fs::PermissionsExt};

use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::people::{Desk, Said};

const PASSWORD: &str = "correct horse battery\n";

/// Makes a user and logs them in; gives the arguments by which a command is theirs.
fn person(desk: &Desk, name: &str) -> String {
    let data = desk.place.data().display().to_string();
    desk.run_with(&format!("user create {name} --password-stdin --data-dir {data}"), PASSWORD);
    let file = desk.file(&format!("{name}.kubeconfig"));
    desk.run_with(&format!("login --data-dir {data} -u {name} --password-stdin --into {file}"), PASSWORD);
    format!("--kubeconfig {file}")
}

/// A machine of a cluster; nothing is behind it.
fn machine(desk: &Desk, cluster: &str, name: &str) {
    let machines = desk.objects("cluster.x-k8s.io", "v1beta2", "Machine", Some("fleet-default"));
    let machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {
            "name": name, "namespace": "fleet-default", "labels": {"cluster.x-k8s.io/cluster-name": cluster},
        },
        "spec": {
            "clusterName": cluster, "bootstrap": {"dataSecretName": "none"},
            "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "CustomMachine", "name": "none"},
        },
    });
    let machine: DynamicObject = serde_json::from_value(machine).unwrap();
    desk.until(|| desk.runtime.block_on(machines.create(&PostParams::default(), &machine)).ok());
}

#[test]
fn everybody_sees_their_clusters_and_is_told_what_they_may_not_see() {
    let desk = Desk::open();
    let [ann, bob, carl, dora] = ["ann", "bob", "carl", "dora"].map(|name| person(&desk, name));
    desk.until(|| {
        desk.say(&format!("cluster create shop --custom {ann}"), "").out.contains("shop").then_some(())
    });
    desk.admin("cluster create hidden --custom");
    machine(&desk, "shop", "shop-m");
    machine(&desk, "hidden", "hidden-m");
    for (user, role) in [("bob", "cluster-member"), ("carl", "view")] {
        desk.until(|| {
            let line = format!(
                "user grant {user} --cluster shop --role {role} --data-dir {}",
                desk.place.data().display()
            );
            (desk.say(&line, "").code == 0).then_some(())
        });
    }
    for who in [&ann, &bob, &carl] {
        // Rights follow what is written, and the parts of the cluster come after it.
        let clusters =
            desk.until(|| Some(desk.say(&format!("cluster list {who}"), "")).filter(|said| said.code == 0));
        let row = clusters.out.lines().find(|line| line.starts_with("shop ")).unwrap_or_default();
        assert!(row.contains("custom"), "{who}\n{}", clusters.out);
        assert!(!clusters.out.contains("hidden"), "{who}\n{}", clusters.out);
        assert!(clusters.err.contains("clusters you have no role in are not shown"), "{}", clusters.err);
        let machines =
            desk.until(|| Some(desk.say(&format!("machine list {who}"), "")).filter(|said| said.code == 0));
        assert!(
            machines.out.contains("shop-m") && !machines.out.contains("hidden-m"),
            "{who}\n{}",
            machines.out
        );
        assert!(machines.err.contains("are not shown"), "{}", machines.err);
        let named = desk.run_with(&format!("machine list -A -o name {who}"), "");
        assert!(named.starts_with("fleet-default/shop-m\n"), "{named}");
        assert!(desk.run_with(&format!("machine describe shop-m {who}"), "").contains("shop-m"));
        assert!(desk.run_with(&format!("cluster describe shop {who}"), "").contains("custom"));

        let why = desk.until(|| {
            let why = desk.say(&format!("why shop -o json {who}"), "");
            let told: Value =
                serde_json::from_str(&why.out).unwrap_or_else(|_| panic!("{}{}", why.out, why.err));
            (told["cause"] != "objects-missing").then_some(told)
        });
        assert_eq!(why["subject"], "cluster fleet-default/shop");
        assert_ne!(why["cause"], "not-allowed", "{why}");
        let rights = why["notAllowed"].as_array().unwrap();
        let secrets = json!({"verb": "list", "resource": "secrets", "namespace": "fleet-default"});
        assert!(rights.contains(&secrets), "{why}");
        let parts =
            ["clusters.cluster.x-k8s.io", "machines.cluster.x-k8s.io", "rkecontrolplanes.rke.cattle.io"];
        assert!(!rights.iter().any(|right| parts.contains(&right["resource"].as_str().unwrap())), "{why}");
        let text = desk.say(&format!("why shop {who}"), "").out;
        assert!(text.contains("Not seen   you may not") && text.contains("secrets"), "{text}");
        assert!(!text.contains("not there yet"), "{text}");

        for name in ["hidden", "hidden-m", "nothing"] {
            let refused = desk.fails(&format!("why {name} {who}"), 5);
            assert!(refused.contains("you may not see a cluster or machine"), "{refused}");
            assert!(refused.contains("server: https://") && refused.contains(".kubeconfig)"), "{refused}");
        }
        desk.fails(&format!("machine describe hidden-m {who}"), 5);
        let all = desk.fails(&format!("cluster delete --all --yes {who}"), 5);
        assert!(all.contains("name the clusters"), "{all}");
    }
    let logs = desk.fails(&format!("machine logs shop-m {bob}"), 5);
    assert!(logs.contains("configmaps"), "{logs}");

    // A stranger is told that they see nothing, and not that there is nothing.
    for (line, words) in [
        ("cluster list", "you may see no clusters"),
        ("cluster list -A -o json", "you may see no clusters"),
        ("machine list", "you may see no machines"),
        ("machine list -o name", "you may see no machines"),
        ("cluster get shop", "you may not see cluster shop"),
        ("why shop", "you may not see a cluster or machine shop"),
    ] {
        let said = desk.say(&format!("{line} {dora}"), "");
        assert_eq!((said.code, said.out.as_str()), (5, ""), "{line}: {}", said.err);
        assert!(said.err.contains(words) && said.err.contains("hint: "), "{line}: {}", said.err);
    }
    let everything = desk.admin("cluster list");
    assert!(everything.contains("shop") && everything.contains("hidden"), "{everything}");
    assert!(!everything.contains("not shown"), "{everything}");

    // The owner may do as owners do; once it is gone they see that.
    desk.run_with(&format!("cluster delete --yes shop {ann}"), "");
}

#[test]
fn the_certificate_of_the_administrator_is_told_how_to_come_by_a_token() {
    let desk = Desk::open();
    person(&desk, "ann");
    let refused = desk.fails(&format!("token create --data-dir {}", desk.place.data().display()), 2);
    assert!(refused.contains("is no user, and only users have tokens"), "{refused}");
    assert!(
        refused.contains("remuda token create --user NAME") && refused.contains("remuda login"),
        "{refused}"
    );
    assert!(desk.admin("token create --user user-ann").starts_with("token-"));
    let unknown =
        desk.fails(&format!("token create --user nobody --data-dir {}", desk.place.data().display()), 2);
    assert!(unknown.contains("there is no user nobody"), "{unknown}");
}

#[test]
fn commands_go_to_the_server_that_is_meant_and_errors_name_it() {
    let desk = Desk::open();
    desk.cluster("edge");
    let (data, home) = (desk.place.data(), desk.place.join("home"));
    let with = |line: &str, name: &str, value: &std::path::Path| -> Said {
        let mut command = desk.command(line);
        command.env(name, value);
        Desk::run(command, "")
    };
    // What kubectl uses leads to the server; a data directory without one is not passed by for it.
    fs::create_dir_all(home.join(".kube")).unwrap();
    fs::copy(data.join("admin.kubeconfig"), home.join(".kube/config")).unwrap();
    let empty = desk.place.join("empty");
    fs::create_dir(&empty).unwrap();
    let path = empty.join("admin.kubeconfig").display().to_string();
    for said in [
        desk.say(&format!("cluster list --data-dir {}", empty.display()), ""),
        with("cluster list", "REMUDA_DATA_DIR", &empty),
        desk.say(&format!("cluster delete --yes edge --data-dir {}", empty.display()), ""),
    ] {
        assert_eq!((said.code, said.out.as_str()), (3, ""), "{}", said.err);
        assert!(said.err.contains(&path) && said.err.contains("--data-dir"), "{}", said.err);
    }
    assert!(desk.run_with("cluster list", "").contains("edge"));
    let offline = desk.say(&format!("backup -o {} --data-dir {}", desk.file("none"), empty.display()), "");
    assert_eq!(offline.code, 1, "{}", offline.out);
    assert!(offline.err.contains(&empty.display().to_string()), "{}", offline.err);

    // Maintenance follows the same rule.
    fs::remove_file(home.join(".kube/config")).unwrap();
    let admin = data.join("admin.kubeconfig");
    let backup = with(&format!("backup -o {}", desk.file("backup")), "KUBECONFIG", &admin);
    assert_eq!(backup.code, 0, "{}", backup.err);
    assert!(fs::metadata(desk.place.join("backup")).unwrap().len() > 1000);
    let rotated = with("rotate-keys", "KUBECONFIG", &admin);
    assert!(rotated.out.starts_with("everything is encrypted"), "{}", rotated.err);

    // A login is remembered, and stays so when kubectl goes elsewhere.
    desk.run_with(&format!("user create ann --password-stdin --data-dir {}", data.display()), PASSWORD);
    desk.admin("user grant ann --cluster edge --role cluster-owner");
    let ca = data.join("pki/ca.crt");
    let login = format!("login {} --ca-file {} -u ann --password-stdin", desk.server.url, ca.display());
    desk.run_with(&login, PASSWORD);
    let remembered = home.join(".config/remuda/server.kubeconfig");
    assert_eq!(fs::metadata(&remembered).unwrap().permissions().mode() & 0o777, 0o600);
    let list = || desk.say("cluster list", "");
    assert!(desk.until(|| Some(list()).filter(|said| said.code == 0)).out.contains("edge"));
    desk.run_with("kubeconfig merge edge --switch", "");
    let kubectl = home.join(".kube/config");
    let current = fs::read_to_string(&kubectl).unwrap();
    assert!(current.contains("current-context: edge"), "{current}");
    for said in [list(), with("cluster list", "KUBECONFIG", &kubectl)] {
        assert!(said.code == 0 && said.out.contains("edge"), "{}{}", said.out, said.err);
    }
    let missing = desk.say("cluster describe nothing", "");
    let place = format!("server: {} (context remuda of {})", desk.server.url, remembered.display());
    assert!(missing.err.contains(&place), "{}", missing.err);
    let denied = desk.say(&format!("backup -o {}", desk.file("denied")), "");
    assert!(denied.code == 1 && denied.err.contains(&place), "{}", denied.err);

    // Without it nothing leads to a server any more, which is said.
    desk.run_with("logout", "");
    assert!(!remembered.exists());
    let lost = list();
    assert_eq!(lost.code, 4, "{}", lost.out);
    assert!(
        lost.err.contains("context edge of") && lost.err.contains("leads into a cluster"),
        "{}",
        lost.err
    );
    assert!(lost.err.contains("--context remuda") && lost.err.contains(&desk.server.url), "{}", lost.err);
    let over = desk.say("cluster list --context remuda", "");
    assert_eq!(over.code, 5, "the session has ended: {}{}", over.out, over.err);

    let Desk { server, place, .. } = desk;
    server.stop();
    let mut command = crate::harness::remuda();
    command.args(["cluster", "list", "--data-dir"]).arg(place.data());
    let said = Desk::run(command, "");
    assert_eq!(said.code, 4, "{}", said.err);
    assert!(
        said.err.contains("server: https://127.0.0.1:") && said.err.contains("admin.kubeconfig)"),
        "{}",
        said.err
    );
    let mut command = crate::harness::remuda();
    command.env("KUBECONFIG", place.data().join("admin.kubeconfig")).args(["rotate-keys"]);
    let said = Desk::run(command, "");
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("(context remuda of ") && said.err.contains("admin.kubeconfig)"),
        "{}",
        said.err
    );
}
