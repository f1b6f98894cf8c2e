"""Discovery and OpenAPI tell of every kind that is served."""

import pytest

from scheduler.sandbox.devcluster.http import discovery, openapi
from scheduler.sandbox.devcluster.kinds import KINDS


@pytest.mark.parametrize(
    ("group", "name", "kind"),
    [
        ("", "pods/binding", {"kind": "Binding"}),
        ("", "pods/eviction", {"kind": "Eviction", "group": "policy", "version": "v1"}),
        ("apps", "deployments/scale", {"kind": "Scale", "group": "autoscaling", "version": "v1"}),
        ("apps", "deployments/status", {"kind": "Deployment"}),
    ],
)
def test_subresources_name_the_kind_of_their_objects(group, name, kind):
    told = discovery.api_resource_list(group, "v1", KINDS)
    assert told is not None
    (entry,) = [one for one in told["resources"] if one["name"] == name]
    assert {key: entry[key] for key in ("kind", "group", "version") if key in entry} == kind


def test_the_index_of_openapi_names_documents_that_exist():
    for path, entry in openapi.index(KINDS)["paths"].items():
        assert openapi.document(path, KINDS) is not None
        assert entry["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=")
    assert openapi.document("apis/example.com/v1", KINDS) is None


def test_kubectl_finds_field_validation_on_every_kind():
    """kubectl looks through the paths for a PATCH of the kind; without the parameter it wants all of OpenAPI v2."""
    for kind in (kind for kind in KINDS if "patch" in kind.verbs):
        document = openapi.document(kind.path.removeprefix("/"), KINDS)
        assert document is not None
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        patches = [item["patch"] for item in document["paths"].values() if "patch" in item]
        (own,) = [patch for patch in patches if patch["x-kubernetes-group-version-kind"] == gvk]
        assert "fieldValidation" in {parameter["name"] for parameter in own["parameters"]}, kind
        assert "requestBody" not in own, kind
