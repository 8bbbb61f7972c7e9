use std::sync::Arc;

use remuda_auth::{
    attributes::Attributes,
    identity::User,
    rbac::policy::{Policy, RbacChange},
};

use super::*;

type All =
    Sources<Arc<GlobalRole>, Arc<GlobalRoleBinding>, Arc<RoleTemplate>, Arc<ClusterRoleTemplateBinding>>;

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(owned(groups)),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

fn bound(name: &str, cluster: &str, user: &str, template: &str) -> Arc<ClusterRoleTemplateBinding> {
    let mut binding = ClusterRoleTemplateBinding {
        cluster_name: cluster.to_owned(),
        user_name: user.to_owned(),
        role_template_name: template.to_owned(),
        ..ClusterRoleTemplateBinding::named(name)
    };
    binding.metadata.namespace = Some(cluster.to_owned());
    Arc::new(binding)
}

fn template(name: &str, rules: Vec<PolicyRule>, parts: &[&str]) -> Arc<RoleTemplate> {
    let role_template_names = parts.iter().map(ToString::to_string).collect();
    Arc::new(RoleTemplate { rules, role_template_names, ..RoleTemplate::named(name) })
}

fn empty() -> All {
    Sources {
        roles: Vec::new(),
        bindings: Vec::new(),
        templates: vec![
            template("cluster-owner", vec![rule(&["*"], &["*"], &["*"])], &[]),
            template(
                "cluster-member",
                vec![rule(&["management.cattle.io"], &["nodes"], &["get"])],
                &["view"],
            ),
            template("view", vec![rule(&[""], &["pods"], &["get"])], &["cluster-member"]),
        ],
        cluster_bindings: Vec::new(),
        provisioned: Vec::new(),
    }
}

fn policy(sources: &All) -> Policy {
    let policy = Policy::new();
    let find = |principal: &str| (principal == "local://ann").then(|| "ann".to_owned());
    for (key, object) in grants(sources, &find) {
        policy.apply(RbacChange::Put(key.kind, &object));
    }
    policy
}

fn may(policy: &Policy, user: &str, attributes: &Attributes<'_>) -> bool {
    policy.authorize(&User::new(user, ["dev"]), attributes).allowed
}

fn cluster<'a>(verb: &'a str, name: &'a str) -> Attributes<'a> {
    Attributes::resource(verb, "management.cattle.io", "clusters").name(name)
}

#[test]
fn a_member_of_one_cluster_is_nobody_in_another() {
    let mut sources = empty();
    sources.cluster_bindings = vec![bound("b1", "c-1", "ann", "cluster-member")];
    let policy = policy(&sources);
    assert!(may(&policy, "ann", &cluster("get", "c-1")));
    assert!(!may(&policy, "ann", &cluster("delete", "c-1")));
    assert!(!may(&policy, "ann", &cluster("get", "c-2")) && !may(&policy, "bob", &cluster("get", "c-1")));
    let nodes = Attributes::resource("get", "management.cattle.io", "nodes");
    assert!(may(&policy, "ann", &nodes.namespace("c-1")) && !may(&policy, "ann", &nodes.namespace("c-2")));
    let pods = Attributes::resource("get", "", "pods").namespace("c-1");
    assert!(!may(&policy, "ann", &pods), "pods of a cluster are not here");
}

#[test]
fn an_owner_may_everything_with_their_cluster_and_what_belongs_to_it() {
    let mut sources = empty();
    sources.cluster_bindings = vec![bound("b1", "c-1", "ann", "cluster-owner")];
    sources.provisioned = vec![Provisioned {
        namespace: "fleet-default".into(),
        name: "demo".into(),
        management: "c-1".into(),
        creator: None,
        kubeconfig: Some("demo-kubeconfig".into()),
    }];
    let policy = policy(&sources);
    assert!(may(&policy, "ann", &cluster("*", "c-1")) && !may(&policy, "ann", &cluster("*", "c-2")));
    let written =
        Attributes::resource("update", "provisioning.cattle.io", "clusters").namespace("fleet-default");
    assert!(may(&policy, "ann", &written.name("demo")) && !may(&policy, "ann", &written.name("other")));
    let secrets = Attributes::resource("get", "", "secrets");
    assert!(may(&policy, "ann", &secrets.namespace("fleet-default").name("demo-kubeconfig")));
    assert!(!may(&policy, "ann", &secrets.namespace("c-1").name("crt-token-default-token")));
}

#[test]
fn whoever_writes_a_cluster_owns_it() {
    let mut sources = empty();
    sources.provisioned = vec![Provisioned {
        namespace: "fleet-default".into(),
        name: "demo".into(),
        management: "c-1".into(),
        creator: Some("ann".into()),
        kubeconfig: None,
    }];
    let before = policy(&sources);
    assert!(may(&before, "ann", &cluster("*", "c-1")) && !may(&before, "bob", &cluster("get", "c-1")));
    let secret =
        Attributes::resource("get", "", "secrets").namespace("fleet-default").name("demo-kubeconfig");
    assert!(
        !may(&before, "ann", &secret),
        "a Secret of that name that the server did not make is not theirs"
    );
    sources.provisioned[0].kubeconfig = Some("demo-kubeconfig".into());
    assert!(may(&policy(&sources), "ann", &secret));
}

#[test]
fn a_binding_elsewhere_than_with_its_cluster_means_nothing() {
    let mut stray = (*bound("b1", "c-1", "ann", "cluster-owner")).clone();
    stray.metadata.namespace = Some("c-2".to_owned());
    let mut sources = empty();
    sources.cluster_bindings =
        vec![Arc::new(stray), bound("b2", "c-1", "", "cluster-owner"), bound("b3", "c-1", "ann", "no-such")];
    let policy = policy(&sources);
    assert!(!may(&policy, "ann", &cluster("get", "c-1")) && !may(&policy, "", &cluster("get", "c-1")));
}

#[test]
fn global_roles_hold_everywhere_or_in_their_namespaces() {
    let mut sources = empty();
    let role = GlobalRole {
        rules: vec![rule(&["management.cattle.io"], &["settings"], &["get"])],
        namespaced_rules: [("fleet-default".to_owned(), vec![rule(&[""], &["secrets"], &["list"])])].into(),
        ..GlobalRole::named("keeper")
    };
    sources.roles = vec![Arc::new(role)];
    let by = |name: &str| GlobalRoleBinding {
        global_role_name: "keeper".to_owned(),
        ..GlobalRoleBinding::named(name)
    };
    sources.bindings = vec![
        Arc::new(GlobalRoleBinding { user_principal_name: "local://ann".to_owned(), ..by("g1") }),
        Arc::new(GlobalRoleBinding { group_principal_name: "ops".to_owned(), ..by("g2") }),
    ];
    let policy = policy(&sources);
    let secrets = Attributes::resource("list", "", "secrets");
    assert!(may(&policy, "ann", &Attributes::resource("get", "management.cattle.io", "settings")));
    assert!(may(&policy, "ann", &secrets.namespace("fleet-default")));
    assert!(
        !may(&policy, "ann", &secrets.namespace("default"))
            && !may(&policy, "bob", &secrets.namespace("fleet-default"))
    );
    let ops = User::new("bob", ["ops"]);
    assert!(policy.authorize(&ops, &secrets.namespace("fleet-default")).allowed);
}

#[test]
fn templates_that_are_part_of_each_other_end() {
    let templates: HashMap<String, Arc<RoleTemplate>> =
        empty().templates.into_iter().map(|template| (template.name_any(), template)).collect();
    let find = |name: &str| templates.get(name).cloned();
    let names: Vec<String> =
        resolve("cluster-member", find).iter().map(|template| template.name_any()).collect();
    assert_eq!(names, ["cluster-member", "view"]);
    assert!(!is_owner(&resolve("cluster-member", find)));
    assert!(is_owner(&resolve("cluster-owner", find)));
}
