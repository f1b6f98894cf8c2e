"""manifests/enforcer is consistent and fits the program: rights, flags, ports and names."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import msgspec

from scheduler.daemon.assembly.watched_kinds import kinds_asked_by, resource_of
from scheduler.daemon.kube import access_reviews, requests
from scheduler.daemon.kube.requests import LeaseSpec, WatchPath
from scheduler.daemon.port import listener
from scheduler.daemon.settings.loading import load_settings
from scheduler.engine.framework.kinds import Asker
from scheduler.tools.enforcer import loop as enforcer
from scheduler.tools.enforcer import requests as enforcer_requests
from scheduler.tools.enforcer.limits import NAME
from tests.support import build
from tests.support.json_cluster import decoded
from tests.support.kubectl import Kubectl
from tests.support.manifest_files import (
    BASE,
    MANIFESTS,
    container,
    documents,
    kustomization,
    named,
    one,
    resources,
)
from tests.support.rights import granted, needed

FOLDER = MANIFESTS / "enforcer"
OBJECTS = resources(FOLDER)
DEPLOYMENT = one(OBJECTS, "Deployment")
POD = DEPLOYMENT["spec"]["template"]
CONTAINER = container(DEPLOYMENT)
(NAMESPACE,) = {kustomization(FOLDER)["namespace"]}
A_POD = decoded(build.pod("p"))


def all_requests() -> list[requests.Request]:
    lease = LeaseSpec(holder_identity="a test")
    watched: set[WatchPath] = set(map(resource_of, kinds_asked_by(Asker.EVERY_CONFIGURATION)))
    return [
        *(requests.list_page(each) for each in watched),
        *(requests.watch(each, resource_version="1", timeout_s=1) for each in watched),
        *(requests.watch_list(each, timeout_s=1) for each in watched),
        requests.get_pod("n", "p"),
        requests.create_event("n", {}),
        requests.patch_event("n", "e", {}),
        requests.get_lease(NAMESPACE, NAME),
        requests.watch_lease(NAMESPACE, NAME, timeout_s=1),
        requests.create_lease(NAMESPACE, NAME, lease),
        requests.update_lease(NAMESPACE, NAME, lease, metadata=msgspec.Raw(b"{}")),
        access_reviews.review_token("t"),
        access_reviews.review_access(access_reviews.UserInfo("u"), "/metrics", "get"),
        enforcer_requests.evict_pod(A_POD),
    ]


def test_with_the_role_to_rebalance_every_kind_can_be_watched() -> None:
    """Also for waiting groups, the levels of a machine room too, by which the scheduler places them."""
    roles = (*named(OBJECTS, "ClusterRole").values(), *documents(FOLDER / "rebalance.yaml")[:1])
    askers = (Asker.EVERY_CONFIGURATION, Asker.DEFAULT_SPREADING, Asker.POD_GROUPS, Asker.PREEMPTION)
    watched = [resource_of(each) for each in kinds_asked_by(*askers)]
    wanted = {needed(requests.list_page(each)) for each in watched}
    wanted |= {needed(requests.watch(each, resource_version="1", timeout_s=1)) for each in watched}
    assert {right for right in granted(roles) if right.verb in ("list", "watch")} == wanted


def test_the_role_for_costs_of_deletion_is_for_their_request_alone() -> None:
    (role,) = named(documents(FOLDER / "deletion-costs.yaml"), "ClusterRole").values()
    request = enforcer_requests.annotate_pod(A_POD, {})
    assert list(granted([role])) == [needed(request)]


def test_every_request_builder_of_evicting_is_compared() -> None:
    public = [
        name
        for name, each in vars(enforcer_requests).items()
        if inspect.isfunction(each)
        and each.__module__ == enforcer_requests.__name__
        and not name.startswith("_")
    ]
    assert sorted(public) == ["annotate_pod", "evict_pod"]


def test_the_configuration_has_the_schedulers_exempt_namespaces() -> None:
    ours, theirs = (load_settings(str(each / "configuration.yaml")) for each in (FOLDER, BASE))
    assert ours.profiles == theirs.profiles


def test_it_can_run_in_another_namespace(tmp_path: Path) -> None:
    up = os.path.relpath(FOLDER, tmp_path)
    text = f"namespace: mine\nresources: [{up}]\n"
    (tmp_path / "kustomization.yaml").write_text(text)
    objects = Kubectl().rendered(tmp_path)
    assert {each["metadata"].get("namespace", "mine") for each in objects} == {"mine"}
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        assert one(objects, kind)["subjects"][0]["namespace"] == "mine"
    arguments = container(one(objects, "Deployment"))["args"]
    assert [each for each in arguments if "kube-system" in each] == ["--protected-namespaces=kube-system"]


def test_selectors_match_the_pods_and_the_budget_allows_drains() -> None:
    budget = one(OBJECTS, "PodDisruptionBudget")["spec"]
    service = {"matchLabels": one(OBJECTS, "Service")["spec"]["selector"]}
    for selector in (DEPLOYMENT["spec"]["selector"], budget["selector"], service):
        assert selector["matchLabels"].items() <= POD["metadata"]["labels"].items()
    assert budget["maxUnavailable"] == 1


def test_the_termination_grace_period_is_long_enough() -> None:
    longest_s = enforcer._STOP_EVICTION_S + enforcer._STOP_EVENTS_S + listener.DRAIN_S
    assert longest_s < POD["spec"]["terminationGracePeriodSeconds"]
