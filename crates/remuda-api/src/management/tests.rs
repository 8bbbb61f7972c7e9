use super::*;
use crate::object::check;
use serde_json::json;

const API: &str = "management.cattle.io/v3";

#[test]
fn what_a_cluster_has_beyond_what_we_know_is_kept() {
    let typed: Cluster = check(
        "clusters.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "Cluster", "metadata": {"name": "c-m-abcdefgh"},
            "spec": {
                "displayName": "demo", "importedConfig": {}, "aksConfig": {"nodePools": [{"count": 3}]},
                "agentEnvVars": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
                "clusterSecrets": {"privateRegistryURL": "r.corp", "s3CredentialSecret": "x"},
                "localClusterAuthEndpoint": {"enabled": true},
            },
            "status": {
                "driver": "k3s", "nodeCount": 3, "capacity": {"cpu": "4"}, "readyReconciling": true,
                "version": {"gitVersion": "v1.35.1+k3s1", "platform": "linux/amd64"},
                "info": {"machineProvider": "custom", "provisioningClusterRef": {"name": "demo"}},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
            "legacy": {"a": [1]},
        }),
    );
    assert_eq!(typed.spec.other["aksConfig"]["nodePools"][0]["count"], 3);
    assert_eq!(typed.other["legacy"], json!({"a": [1]}));
}

#[test]
fn a_registration_token_survives() {
    let _: ClusterRegistrationToken = check(
        "clusterregistrationtokens.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "ClusterRegistrationToken", "metadata": {"name": "default-token"},
            "spec": {"clusterName": "c-m-abcdefgh", "ttl": 0, "gracePeriod": 10},
            "status": {"nodeCommand": "curl {token}", "manifestUrl": "https://x", "tokenSecretName": "crt-token-x"},
        }),
    );
}

#[test]
fn a_node_survives() {
    let typed: Node = check(
        "nodes.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "Node", "metadata": {"name": "machine-1", "namespace": "c-m-abcdefgh"},
            "spec": {"worker": true, "requestedHostname": "n1", "internalNodeSpec": {"unschedulable": true}, "displayName": "x"},
            "status": {
                "nodeName": "n1", "nodeLabels": {"a": "b"}, "requested": {"cpu": "100m"},
                "internalNodeStatus": {"capacity": {"cpu": "4"}},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }),
    );
    assert!(typed.spec.worker && typed.spec.other["displayName"] == "x");
}

#[test]
fn a_setting_has_its_value_at_the_root() {
    let mut typed: Setting = check(
        "settings.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "Setting", "metadata": {"name": "server-url"},
            "value": "https://a", "default": "https://b", "customized": true, "source": "db",
        }),
    );
    assert_eq!(typed.effective(), "https://a");
    typed.value.clear();
    assert_eq!(typed.effective(), "https://b");
}

#[test]
fn a_feature_is_what_it_is_locked_to_then_set_to_then_by_default() {
    for (spec, status, expected) in [
        (json!({}), json!({"default": true}), true),
        (json!({"value": false}), json!({"default": true}), false),
        (json!({"value": false}), json!({"lockedValue": true}), true),
        (json!({"value": null}), json!(null), false),
    ] {
        let feature: Feature =
            serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap();
        assert_eq!(feature.is_on(), expected, "{feature:?}");
    }
}

#[test]
fn drivers_and_their_schemas_survive() {
    let _: NodeDriver = check(
        "nodedrivers.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "NodeDriver", "metadata": {"name": "digitalocean"},
            "spec": {"displayName": "digitalocean", "active": true, "builtin": true, "url": "local://", "uiUrl": "x"},
            "status": {"appliedURL": "local://", "conditions": [{"type": "Active", "status": "True"}]},
        }),
    );
    let typed: DynamicSchema = check(
        "dynamicschemas.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "DynamicSchema", "metadata": {"name": "digitaloceanconfig"},
            "spec": {
                "schemaName": "digitaloceanconfig", "embed": true, "embedType": "nodetemplateconfig",
                "resourceFields": {"sshPort": {
                    "type": "string", "default": {"stringValue": "22"}, "create": true, "nullable": true, "minLength": 0,
                }},
            },
        }),
    );
    assert_eq!(typed.spec.resource_fields["sshPort"].default.string_value, "22");
}

#[test]
fn people_and_their_rights_survive() {
    let _: User = check(
        "users.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "User", "metadata": {"name": "u-l3jmhncqjg"},
            "principalIds": ["system://provisioning/fleet-default/demo"], "enabled": false,
        }),
    );
    let _: Token = check(
        "tokens.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "Token", "metadata": {"name": "t"}, "userId": "u", "ttl": 1,
            "userPrincipal": {"displayName": "x", "metadata": {"name": "local://u"}}, "isDerived": true,
        }),
    );
    let _: AuthConfig = check(
        "authconfigs.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "AuthConfig", "metadata": {"name": "genericoidc"}, "type": "genericOIDCConfig",
            "enabled": true, "issuer": "https://op", "clientId": "remuda", "scope": "openid", "acrValue": "x",
        }),
    );
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let _: GlobalRole = check(
        "globalroles.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "GlobalRole", "metadata": {"name": "g"}, "rules": rules,
            "namespacedRules": {"default": rules},
            "inheritedFleetWorkspacePermissions": {"resourceRules": rules, "workspaceVerbs": ["get"]},
        }),
    );
    let _: GlobalRoleBinding = check(
        "globalrolebindings.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "GlobalRoleBinding", "metadata": {"name": "g"}, "userName": "u",
            "globalRoleName": "g", "status": {"summary": "Completed", "observedGenerationLocal": 1},
        }),
    );
    let _: RoleTemplate = check(
        "roletemplates.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "RoleTemplate", "metadata": {"name": "cluster-owner"}, "context": "cluster",
            "rules": rules, "administrative": true, "externalRules": [],
        }),
    );
    let _: ClusterRoleTemplateBinding = check(
        "clusterroletemplatebindings.management.cattle.io",
        json!({
            "apiVersion": API, "kind": "ClusterRoleTemplateBinding", "metadata": {"name": "x", "namespace": "c"},
            "clusterName": "c", "roleTemplateName": "cluster-owner", "userName": "u",
        }),
    );
    let _: FleetWorkspace = check(
        "fleetworkspaces.management.cattle.io",
        json!({"apiVersion": API, "kind": "FleetWorkspace", "metadata": {"name": "fleet-default"}, "status": {}}),
    );
}
