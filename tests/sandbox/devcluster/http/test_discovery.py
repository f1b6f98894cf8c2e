"""Discovery and OpenAPI tell of every kind that is served."""

import json

import pytest

from scheduler.sandbox.devcluster.access.authentication import ADMIN, MASTERS, Authenticator
from scheduler.sandbox.devcluster.access.reviews import REVIEWS, answer_review, review_at
from scheduler.sandbox.devcluster.http import discovery, openapi
from scheduler.sandbox.devcluster.http.discovery import SERVED
from scheduler.sandbox.devcluster.kinds import KINDS
from scheduler.sandbox.devcluster.storage.store import Store

GROUPS = sorted({kind.group for kind in SERVED if kind.group})


def test_every_named_group_is_listed_once():
    assert sorted(group["name"] for group in discovery.api_group_list()["groups"]) == GROUPS


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: kind.qualified)
def test_discovery_lists_every_kind(kind):
    plain = discovery.api_resource_list(kind.group, kind.version)
    assert plain is not None
    assert plain["groupVersion"] == kind.api_version
    named = {one["name"]: one for one in plain["resources"]}
    assert named[kind.plural]["kind"] == kind.kind
    assert named[kind.plural]["verbs"] == list(kind.verbs)
    assert {f"{kind.plural}/{name}" for name in kind.subresources} <= set(named)


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
    told = discovery.api_resource_list(group, "v1")
    assert told is not None
    (entry,) = [one for one in told["resources"] if one["name"] == name]
    assert {key: entry[key] for key in ("kind", "group", "version") if key in entry} == kind


def documents():
    return {path: openapi.document(path) for path in openapi.index()["paths"]}


def test_the_index_of_openapi_names_documents_that_exist():
    for path, entry in openapi.index()["paths"].items():
        assert openapi.document(path) is not None
        assert entry["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=")
    assert openapi.document("apis/example.com/v1") is None


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "patch" in kind.verbs], ids=lambda k: k.qualified)
def test_kubectl_finds_field_validation_on_every_kind(kind):
    """kubectl looks through the paths for a PATCH of the kind; without the parameter it wants all of OpenAPI v2."""
    document = openapi.document(kind.path.removeprefix("/"))
    assert document is not None
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    patches = [item["patch"] for item in document["paths"].values() if "patch" in item]
    (own,) = [patch for patch in patches if patch["x-kubernetes-group-version-kind"] == gvk]
    assert "fieldValidation" in {parameter["name"] for parameter in own["parameters"]}
    assert "requestBody" not in own


def test_every_reference_in_openapi_resolves():
    for document in documents().values():
        assert document is not None
        text = json.dumps(document)
        for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
            assert name in document["components"]["schemas"]


def test_openapi_stays_small():
    assert sum(len(json.dumps(document)) for document in documents().values()) < 150_000


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", "SelfSubjectReview"),
        ("/apis/authorization.k8s.io/v1/namespaces/a/selfsubjectaccessreviews", None),
        ("/apis/authorization.k8s.io/v1", None),
        ("/api/v1/pods", None),
    ],
)
def test_reviews_have_paths_of_their_own(path, kind):
    found = review_at(path)
    assert (found.kind if found else None) == kind


@pytest.mark.parametrize("kind", REVIEWS, ids=lambda kind: kind.kind)
def test_every_answer_repeats_its_review(kind):
    store = Store()
    spec = {"resourceAttributes": {"verb": "create"}, "user": "a", "groups": [MASTERS], "token": "t"}
    authenticator = Authenticator(store, "t")
    answer = answer_review(kind, {"spec": spec}, caller=ADMIN, authenticator=authenticator, store=store)
    assert answer["kind"] == kind.kind
    assert answer["spec"] == spec
    assert answer["status"].get("allowed", True)
