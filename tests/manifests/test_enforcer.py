"""manifests/enforcer fits together, and fits the program: rights, flags, ports, names."""

from __future__ import annotations

import argparse
import inspect
import os
from pathlib import Path

import msgspec

from scheduler.cli import enforce
from scheduler.kube import access_reviews, enforcer_requests, requests
from scheduler.kube.requests import LIVE_PODS, LeaseSpec, Resource
from scheduler.serving import listener
from scheduler.settings.loading import load_settings
from scheduler.shell import enforcer
from scheduler.shell.enforcement_reports import NAME
from scheduler.shell.informers import required_kinds
from tests.manifests.files import BASE, MANIFESTS, container, kustomization, named, one, resources
from tests.manifests.kubectl import Kubectl
from tests.manifests.rights import Right, granted

FOLDER = MANIFESTS / "enforcer"
OBJECTS = resources(FOLDER)
DEPLOYMENT = one(OBJECTS, "Deployment")
POD = DEPLOYMENT["spec"]["template"]
CONTAINER = container(DEPLOYMENT)
(NAMESPACE,) = {kustomization(FOLDER)["namespace"]}


def right(request: requests.Request) -> Right:
    """The right that a request needs; of its own Lease and ConfigMap by name."""
    parts = request.path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = "/".join((rest[0], *rest[2:]))
    name = rest[1] if len(rest) == 2 and rest[0] in ("leases", "configmaps") else ""
    return Right(group, resource, request.verb, name)


def all_requests() -> list[requests.Request]:
    lease = LeaseSpec(holder_identity="a test")
    watched: set[Resource] = {LIVE_PODS, *(each.resource for each in required_kinds())}
    return [
        *(requests.list_page(each) for each in watched),
        *(requests.watch(each, resource_version="1", timeout_s=1) for each in watched),
        *(requests.watch_list(each, timeout_s=1) for each in watched),
        requests.get_pod("n", "p"),
        requests.create_event("n", b""),
        requests.patch_event("n", "e", b""),
        requests.get_lease(NAMESPACE, NAME),
        requests.create_lease(NAMESPACE, NAME, lease),
        requests.update_lease(NAMESPACE, NAME, lease, metadata=enforce_metadata()),
        access_reviews.review_token("t"),
        access_reviews.review_access(access_reviews.UserInfo("u"), "/metrics", "get"),
        enforcer_requests.evict_pod("n", "p", "u"),
        enforcer_requests.get_config_map(NAMESPACE, NAME),
        enforcer_requests.create_config_map(NAMESPACE, NAME, {}),
        enforcer_requests.update_config_map(NAMESPACE, NAME, {}, resource_version="1"),
    ]


def enforce_metadata() -> msgspec.Raw:
    return msgspec.Raw(b"{}")


def test_the_roles_grant_what_is_asked_for_and_nothing_else() -> None:
    roles = (*named(OBJECTS, "ClusterRole").values(), *named(OBJECTS, "Role").values())
    rights = list(granted(roles))
    assert sorted(rights) == sorted({right(request) for request in all_requests()})
    assert len(rights) == len(set(rights)), "a right is granted twice"


def test_every_request_of_its_own_is_compared() -> None:
    public = [
        name
        for name, each in vars(enforcer_requests).items()
        if inspect.isfunction(each)
        and each.__module__ == enforcer_requests.__name__
        and not name.startswith("_")
    ]
    assert sorted(public) == [
        "create_config_map",
        "evict_pod",
        "get_config_map",
        "is_terminating",
        "update_config_map",
    ]


def test_the_arguments_are_the_programs() -> None:
    command, *arguments = CONTAINER["args"]
    assert command == "enforce"
    parser = argparse.ArgumentParser(exit_on_error=False)
    enforce.add_arguments(parser)
    parsed = parser.parse_args(arguments)
    assert (parsed.namespace, parsed.name) == ("$(NAMESPACE)", NAME)
    (variable,) = CONTAINER["env"]
    assert variable["name"] == "NAMESPACE"
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
    (mount,) = CONTAINER["volumeMounts"]
    (volume,) = POD["spec"]["volumes"]
    (generated,) = kustomization(FOLDER)["configMapGenerator"]
    assert (mount["name"], volume["configMap"]["name"]) == (volume["name"], generated["name"])
    assert [parsed.config] == [f"{mount['mountPath']}/{name}" for name in generated["files"]]
    assert parsed.bind_address == "0.0.0.0"
    assert [parsed.port] == [port["containerPort"] for port in CONTAINER["ports"]]
    parsed.namespace, parsed.config = NAMESPACE, str(FOLDER / "configuration.yaml")
    options = enforce._options(parsed)
    assert options.limits == enforce._LIMITS
    assert (options.namespace, options.name) == (NAMESPACE, NAME)
    assert options.election is not None
    assert (options.election.namespace, options.election.name) == (NAMESPACE, NAME)


def test_it_has_the_exempt_namespaces_of_the_scheduler() -> None:
    ours, theirs = (load_settings(str(each / "configuration.yaml")) for each in (FOLDER, BASE))
    assert ours.profiles == theirs.profiles


def test_it_runs_in_a_namespace_of_ones_own_choosing(tmp_path: Path) -> None:
    """A kustomization over it that names the namespace is enough."""
    up = os.path.relpath(FOLDER, tmp_path)
    text = f"namespace: mine\nresources: [{up}]\n"
    (tmp_path / "kustomization.yaml").write_text(text)
    objects = Kubectl().rendered(tmp_path)
    assert {each["metadata"].get("namespace", "mine") for each in objects} == {"mine"}
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        assert one(objects, kind)["subjects"][0]["namespace"] == "mine"
    arguments = container(one(objects, "Deployment"))["args"]
    assert [each for each in arguments if "kube-system" in each] == ["--protected-namespaces=kube-system"]


def test_bindings_give_the_roles_to_the_account_that_the_pods_run_as() -> None:
    (account,) = named(OBJECTS, "ServiceAccount")
    assert POD["spec"]["serviceAccountName"] == account
    for binding, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        bound = one(OBJECTS, binding)
        assert bound["roleRef"]["name"] in named(OBJECTS, role)
        assert bound["subjects"] == [{"kind": "ServiceAccount", "name": account}]


def test_selectors_match_the_pods_and_a_drain_is_never_held_up() -> None:
    budget = one(OBJECTS, "PodDisruptionBudget")["spec"]
    service = {"matchLabels": one(OBJECTS, "Service")["spec"]["selector"]}
    for selector in (DEPLOYMENT["spec"]["selector"], budget["selector"], service):
        assert selector["matchLabels"].items() <= POD["metadata"]["labels"].items()
    assert budget["maxUnavailable"] == 1


def test_kubernetes_waits_for_an_orderly_stop() -> None:
    longest_s = enforcer._STOP_EVICTION_S + enforcer._STOP_EVENTS_S + listener.DRAIN_S
    assert longest_s < POD["spec"]["terminationGracePeriodSeconds"]
