"""manifests/enforcer is consistent and fits the program: rights, flags, ports and names."""

from __future__ import annotations

import os
from pathlib import Path

from scheduler.daemon.assembly.watched_kinds import kinds_asked_by, resource_of
from scheduler.daemon.kube import requests
from scheduler.daemon.settings.loading import load_settings
from scheduler.engine.framework.kinds import Asker
from scheduler.sandbox.devcluster.http.faults import FAULTS_PATH, Effect
from scheduler.tools.enforcer.cost_writer import annotate_pod
from tests.support import build
from tests.support.enforcer_driver import REQUIRED, rules
from tests.support.enforcer_process import enforcing, shop
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
from tests.support.waiting import until

FOLDER = MANIFESTS / "enforcer"
OBJECTS = resources(FOLDER)
CONTAINER = container(one(OBJECTS, "Deployment"))
(NAMESPACE,) = {kustomization(FOLDER)["namespace"]}


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
    request = annotate_pod(decoded(build.pod("p")), {})
    assert list(granted([role])) == [needed(request)]


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


async def test_it_lists_if_lists_cannot_be_streamed(tmp_path: Path) -> None:
    """It also writes two broken rules of one pod as a series of one event: both need rarely used rights."""
    terms = [build.term(build.ZONE, build.selector(each)) for each in ("app=db", "tier=back")]
    refused = {"action": Effect.RESPOND.value, "verb": "watch", "code": 400}
    async with shop(tmp_path) as cluster:
        faults = [{**refused, "kind": kind} for kind in ("pods", "nodes", "namespaces")]
        assert (await cluster.api.post(FAULTS_PATH, faults)).code == 204
        await cluster.pod("db", "a1", labels={"app": "db", "tier": "back"})
        await cluster.pod("p", "a2", rules(far=terms, which=REQUIRED))
        async with enforcing(cluster.kubeconfig) as daemon:
            assert await daemon.metric("rest_client_requests_total", code="400") == 3
            await until(
                lambda: cluster.events("p", "AffinityRuleBroken"),
                lambda events: any(event.get("series") for event in events),
                what="a series",
            )
