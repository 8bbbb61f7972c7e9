"""What a Python program does with a cluster. Takes a kubeconfig; says `done` at the end."""

import sys

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException


def refused(code, reason, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ApiException as error:
        assert error.status == code, error
        assert reason in error.body, error.body
    else:
        raise AssertionError(f"{call} was not refused")


config.load_kube_config(sys.argv[1])
core, apps, rbac = client.CoreV1Api(), client.AppsV1Api(), client.RbacAuthorizationV1Api()
custom, extensions = client.CustomObjectsApi(), client.ApiextensionsV1Api()
authorization = client.AuthorizationV1Api()

assert client.VersionApi().get_code().major == "1"
names = {namespace.metadata.name for namespace in core.list_namespace().items}
assert {"default", "kube-system"} <= names, names

core.create_namespace({"metadata": {"name": "py"}})
made = core.create_namespaced_config_map("py", {"metadata": {"name": "a", "labels": {"app": "x"}}, "data": {"k": "1"}})
assert made.metadata.uid and made.metadata.creation_timestamp
refused(409, "AlreadyExists", core.create_namespaced_config_map, "py", {"metadata": {"name": "a"}})
refused(404, "NotFound", core.read_namespaced_config_map, "missing", "py")
refused(422, "Invalid", core.create_namespaced_config_map, "py", {"metadata": {"name": "Not A Name"}})

patched = core.patch_namespaced_config_map("a", "py", {"data": {"k": "2", "l": "3"}})
assert patched.data == {"k": "2", "l": "3"}
made.data = {"k": "stale"}
refused(409, "Conflict", core.replace_namespaced_config_map, "a", "py", made)
assert len(core.list_namespaced_config_map("py", label_selector="app=x").items) == 1
assert not core.list_namespaced_config_map("py", label_selector="app!=x,app").items

seen = []
events = watch.Watch()
listed = core.list_namespaced_config_map("py")
core.create_namespaced_config_map("py", {"metadata": {"name": "b"}})
core.delete_namespaced_config_map("b", "py")
for event in events.stream(
    core.list_namespaced_config_map, "py", resource_version=listed.metadata.resource_version, timeout_seconds=20
):
    seen.append((event["type"], event["object"].metadata.name))
    if event["type"] == "DELETED":
        events.stop()
assert seen == [("ADDED", "b"), ("DELETED", "b")], seen

for number in range(25):
    core.create_namespaced_secret("py", {"metadata": {"generateName": "s-"}, "stringData": {"n": str(number)}})
page, pages, found = core.list_namespaced_secret("py", limit=10), 1, 0
found += len(page.items)
while page.metadata._continue:
    page = core.list_namespaced_secret("py", limit=10, _continue=page.metadata._continue)
    pages, found = pages + 1, found + len(page.items)
assert (pages, found) == (3, 25), (pages, found)
core.delete_collection_namespaced_secret("py")
assert not core.list_namespaced_secret("py").items

deployment = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}},
    },
}
created = apps.create_namespaced_deployment("py", deployment)
assert created.spec.strategy.type == "RollingUpdate"
apps.patch_namespaced_deployment_scale("web", "py", {"spec": {"replicas": 3}})
assert apps.read_namespaced_deployment_scale("web", "py").spec.replicas == 3

schema = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
}
extensions.create_custom_resource_definition(
    {
        "metadata": {"name": "gadgets.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
)
for event in (events := watch.Watch()).stream(
    extensions.list_custom_resource_definition, field_selector="metadata.name=gadgets.example.org", timeout_seconds=20
):
    conditions = event["object"].status.conditions if event["object"].status else None
    if any(c.type == "Established" and c.status == "True" for c in conditions or []):
        events.stop()
gadget = {"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"size": 1}}
custom.create_namespaced_custom_object("example.org", "v1", "py", "gadgets", gadget)
gadget["spec"]["size"] = "large"
refused(422, "spec.size", custom.create_namespaced_custom_object, "example.org", "v1", "py", "gadgets", gadget)

gadgets = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="example.org/v1", kind="Gadget")
assert gadgets.get(name="g", namespace="py").spec.size == 1
applied = gadgets.server_side_apply(
    body={"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"size": 2}},
    name="g", namespace="py", field_manager="py", force_conflicts=True,
)
assert applied.spec.size == 2

review = authorization.create_self_subject_access_review(
    {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "py"}}}
)
assert review.status.allowed
rbac.create_namespaced_role("py", {"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]})

core.delete_namespace("py")
for event in (events := watch.Watch()).stream(
    core.list_namespace, field_selector="metadata.name=py", timeout_seconds=20
):
    if event["type"] == "DELETED":
        events.stop()
refused(404, "NotFound", core.read_namespace, "py")
print("done")
