"""Every suggestion of `explain` and `simulate` is done to the real workload, whose pods bind then."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.engine.syntax.quantity import parse_quantity
from tests.support import accounts, build
from tests.support.cluster import NAME, Cluster, kubeconfig_text
from tests.support.daemon import running
from tests.support.forking import forked
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]

_DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
_PODS = "/api/v1/namespaces/default/pods"
_OF_TEMPLATE = ("tolerateTaint", "allowSkew", "addMatchLabelKey", "honorPolicy")
_GROUP = {"affinity-scheduler.io/pod-group": "web", "affinity-scheduler.io/pod-group-min-count": "3"}
_SETTLES_S = 20.0


def _deployment(n_replicas: int, *, cpu: str = "100m", labels: build.Json | None = None, **spec: Any) -> Any:
    """Return a Deployment of pods with the label app=web, whose rollout deletes no pod before a new one runs."""
    labels = {"app": "web", **(labels or {})}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "schedulerName": NAME,
            "containers": [build.container(requests={"cpu": cpu})],
            **spec,
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": n_replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": template,
        },
    }


async def _asked(cluster: Cluster, *arguments: str) -> Any:
    """Return what the command prints as JSON, to a person with the rights of manifests/explain."""
    assert cluster.devcluster is not None
    folder = Path(cluster.kubeconfig).parent
    person = folder / "person"
    if not person.exists():
        token = accounts.new_account(cluster.devcluster, "person", accounts.EXPLAIN_READER)
        person.write_text(kubeconfig_text(cluster.devcluster.url, token=token))
    process = await forked("scheduler", *arguments, "--kubeconfig", str(person), "-o", "json")
    out, _ = await process.communicate()
    return json.loads(out)


_ALONE = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])
_SPREAD = {
    "maxSkew": 1,
    "topologyKey": build.ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
_ROLLOUT = {"metadata": {"annotations": {"revision": "2"}}}
#: By name: the Deployment, and the change of its template that a rollout makes.
CASES = {
    "a rollout stuck on its own anti-affinity": (_deployment(2, affinity=_ALONE), _ROLLOUT),
    "more replicas than zones": (_deployment(3, affinity=_ALONE), None),
    "spread over zones of which one is closed": (_deployment(4, topologySpreadConstraints=[_SPREAD]), None),
    "too little room": (_deployment(5, cpu="3"), None),
    "a group": (_deployment(5, cpu="3", labels={**_GROUP, list(_GROUP)[1]: "5"}), None),
}


@asynccontextmanager
async def _clusters(folder: Path) -> AsyncIterator[Cluster]:
    """
    Yield a cluster whose scheduler runs: zones a and b with a node of four CPUs, zone c with a tainted and a cordoned
    one, and a pod on its own that takes half of a node.
    """
    folder.mkdir(exist_ok=True)
    async with embedded(folder, controllers=True) as cluster:
        await cluster.add_node("a1", labels={build.ZONE: "a"}, allocatable={"cpu": "4"})
        await cluster.add_node("b1", labels={build.ZONE: "b"}, allocatable={"cpu": "4"})
        tainted = ["dedicated=db:NoSchedule"]
        await cluster.add_node("c1", labels={build.ZONE: "c"}, allocatable={"cpu": "4"}, taints=tainted)
        await cluster.add_node("c2", labels={build.ZONE: "c"}, allocatable={"cpu": "4"}, unschedulable=True)
        await cluster.create(_PODS, build.pod("alone", node="b1", cpu="2"))
        async with running(Path(cluster.kubeconfig)):
            yield cluster


async def _pods(cluster: Cluster) -> list[Any]:
    """Return the Deployment's pods that are not terminating."""
    pods = (await cluster.api.get(_PODS)).ok["items"]
    return [
        pod
        for pod in pods
        if pod["metadata"].get("labels", {}).get("app") == "web"
        and "deletionTimestamp" not in pod["metadata"]
    ]


def _is_settled(pods: list[Any], n_least: int) -> bool:
    """Return whether each pod has a node, or a condition that says why not."""
    return len(pods) >= n_least and all(
        pod["spec"].get("nodeName")
        or any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions", ()))
        for pod in pods
    )


async def _stuck(cluster: Cluster, deployment: Any, rollout: Any) -> list[Any]:
    """Create the Deployment, roll out the change of its template, and return its pods once some of them are stuck."""
    n_replicas = deployment["spec"]["replicas"]
    await cluster.create(_DEPLOYMENTS, copy.deepcopy(deployment))
    pods = await until(
        lambda: _pods(cluster),
        lambda found: _is_settled(found, n_replicas),
        what="pods",
        timeout_s=_SETTLES_S,
    )
    if rollout is None:
        return pods
    await until(
        lambda: _pods(cluster), lambda found: all(p["spec"].get("nodeName") for p in found), what="v1"
    )
    await _patch(cluster, f"{_DEPLOYMENTS}/web", {"spec": {"template": rollout}})
    return await until(
        lambda: _pods(cluster), lambda found: _is_settled(found, n_replicas + 1), what="the rollout"
    )


async def _patch(cluster: Cluster, path: str, change: build.Json) -> None:
    (await cluster.api.patch(path, change)).ok  # noqa: B018 - asserts success


async def _do(cluster: Cluster, changes: list[build.Json]) -> None:
    """Make the changes as an operator would."""
    deployment = (await cluster.api.get(f"{_DEPLOYMENTS}/web")).ok
    template = deployment["spec"]["template"]
    for change in changes:
        _edit(template, change)
    if any(change["change"] in _OF_TEMPLATE for change in changes):
        spec: build.Json = {"template": template}
        if any(change["change"] == "recreateWithMatchLabelKey" for change in changes):
            spec["strategy"] = {"type": "Recreate", "rollingUpdate": None}
        await _patch(cluster, f"{_DEPLOYMENTS}/web", {"spec": spec})
    for change in changes:
        await _do_to_cluster(cluster, change)


def _edit(template: Any, change: build.Json) -> None:
    spec = template["spec"]
    match change["change"]:
        case "tolerateTaint":
            taint = {key: change[key] for key in ("key", "value", "effect") if change[key]}
            spec.setdefault("tolerations", []).append({**taint, "operator": "Equal"})
        case "allowSkew":
            for constraint in spec["topologySpreadConstraints"]:
                constraint["maxSkew"] = change["maxSkew"]
        case "honorPolicy":
            for constraint in spec["topologySpreadConstraints"]:
                constraint[change["field"]] = "Honor"
        case "addMatchLabelKey" if change["field"] == "topologySpreadConstraints":
            for constraint in spec["topologySpreadConstraints"]:
                constraint["matchLabelKeys"] = [change["labelKey"]]
        case "addMatchLabelKey":
            for term in spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]:
                term["matchLabelKeys"] = [change["labelKey"]]


async def _do_to_cluster(cluster: Cluster, change: build.Json) -> None:
    node = f"/api/v1/nodes/{change.get('node', '')}"
    match change["change"]:
        case "removePod":
            await cluster.api.delete(f"{_PODS}/{change['pod']}", {"gracePeriodSeconds": 0})
        case "removeTaint":
            await _patch(cluster, node, {"spec": {"taints": None}})
        case "uncordon":
            await _patch(cluster, node, {"spec": {"unschedulable": None}})
        case "labelNode":
            await _patch(cluster, node, {"metadata": {"labels": {change["key"]: change["value"]}}})
        case "addRoom":
            has = (await cluster.api.get(node)).ok["status"]["allocatable"][change["resource"]]
            assert change["resource"] == "cpu"
            milli = parse_quantity(has).milli_value() + change["amount"]
            await _patch(cluster, f"{node}/status", {"status": {"allocatable": {"cpu": f"{milli}m"}}})
        case "rollOutInPlace":
            strategy = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
            await _patch(cluster, f"{_DEPLOYMENTS}/web", {"spec": {"strategy": strategy}})
        case "tolerateTaint" | "allowSkew" | "addMatchLabelKey" | "recreateWithMatchLabelKey" | "honorPolicy":
            pass  # in the template
        case other:
            raise AssertionError(f"an unknown change: {other}")


async def _assert_helps(cluster: Cluster, before: list[Any], changes: list[build.Json]) -> None:
    """Make the changes, and wait until another pod of the workload binds; beside as many others if all are replaced."""
    n_replicas = (await cluster.api.get(f"{_DEPLOYMENTS}/web")).ok["spec"]["replicas"]
    known = {pod["metadata"]["uid"] for pod in before if pod["spec"].get("nodeName")}
    is_of_template = any(change["change"] in _OF_TEMPLATE for change in changes)

    def helps(pods: list[Any]) -> bool:
        bound = {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName")}
        if is_of_template:
            return len(bound) > len(known) or len(pods) == len(bound) == n_replicas
        return bool(bound - known)

    await _do(cluster, changes)
    await until(lambda: _pods(cluster), helps, timeout_s=_SETTLES_S, what=f"a bind after {changes}")


@pytest.mark.parametrize("case", CASES)
async def test_every_suggestion_for_a_pending_pod_lets_the_workload_bind(case: str, tmp_path: Path) -> None:
    deployment, rollout = CASES[case]
    async with _clusters(tmp_path / "first") as cluster:
        stuck = [pod for pod in await _stuck(cluster, deployment, rollout) if not pod["spec"].get("nodeName")]
        name = stuck[0]["metadata"]["name"]
        suggestions = (await _asked(cluster, "explain", name))["suggestions"]
    assert suggestions

    async def tried(number: int) -> None:
        """Names of pods differ in each cluster: those of the workload are matched by their node."""
        async with _clusters(tmp_path / f"{number}") as cluster:
            before = await _stuck(cluster, deployment, rollout)
            pending = next(p["metadata"]["name"] for p in before if not p["spec"].get("nodeName"))
            again = await _asked(cluster, "explain", pending)
            await _assert_helps(cluster, before, again["suggestions"][number]["changes"])

    for number in range(len(suggestions)):
        await tried(number)


async def test_what_would_help_more_replicas_is_not_a_change_that_all_replicas_share(tmp_path: Path) -> None:
    """With matchLabelKeys, all replicas of a Deployment are of one revision again: no more of them fit."""
    async with _clusters(tmp_path / "cluster") as cluster:
        await _stuck(cluster, _deployment(2, affinity=_ALONE), None)
        wanted = _deployment(1, cpu="200m", affinity=_ALONE)
        (tmp_path / "web.json").write_text(json.dumps(wanted))
        arguments = ("-f", str(tmp_path / "web.json"), "--replicas", "2")
        (found,) = await _asked(cluster, "simulate", *arguments)
        changes = [change["change"] for s in found["next"]["suggestions"] for change in s["changes"]]
        assert changes
        assert not {"addMatchLabelKey", "recreateWithMatchLabelKey"} & set(changes)
