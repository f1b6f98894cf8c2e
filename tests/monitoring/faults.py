"""The faults that alerts are about, and their remedies, each done to the cluster of a `Night`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from scheduler.devcluster.http.faults import Action, Fault
from scheduler.devcluster.kinds import CLUSTER_ROLE, CUSTOM_RESOURCE_DEFINITION, NODE, POD, ROLE, Kind
from scheduler.model.annotations import AFFINITY
from tests.monitoring.night import SYSTEM, Night
from tests.support import build
from tests.support.cluster import NAME
from tests.support.custom_kinds import USAGE, usage_definition
from tests.support.enforcer_driver import rules
from tests.support.waiting import until
from tests.testing.test_failing_rule import CONFIG, RULE


async def schedule(night: Night) -> None:
    """Start a scheduler."""
    await night.start()


async def no_more(night: Night) -> None:
    """Let the API server answer again."""
    night.cluster.faults.clear()


# Down


async def a_wrong_configuration(night: Night) -> None:
    """Its pod is replaced by one that ends at once, which a kubelet would start again."""
    await night.daemon.stop()
    path = night.configuration(parallelism="many")
    daemon = await night.start("--config", str(path), waits=False)
    assert await daemon.ended() == 2
    night.write_status(ready=False, restartCount=3, state={"waiting": {"reason": "CrashLoopBackOff"}})


async def a_right_configuration(night: Night) -> None:
    await night.start("--config", str(night.configuration()))


# NoLeader


async def elect(night: Night) -> None:
    await night.start("--config", str(night.configuration()), "--leader-elect", "true")


async def another_program_holds_the_lease(night: Night) -> None:
    await night.daemon.stop()
    night.write_lease(holderIdentity="another-program", leaseDurationSeconds=3600)
    await elect(night)


async def the_lease_is_released(night: Night) -> None:
    """As the other program does at its end, once it has a name of its own."""
    night.write_lease(holderIdentity="", leaseDurationSeconds=1)


async def the_role_of_the_lease_is_missing(night: Night) -> None:
    await night.daemon.stop()
    night.cluster.store.delete(ROLE, SYSTEM, f"{NAME}-leader-election")
    await elect(night)


async def apply_again(night: Night) -> None:
    """As the runbook says."""
    await night.tried("Forbidden", "apply -k")


# TwoLeaders


async def two_namespaces_of_leases(night: Night) -> None:
    night.cluster.write_kubeconfig(night.folder / "second")
    election = {"resourceName": NAME, "resourceNamespace": "default"}
    path = night.configuration(leaderElection=election)
    flags = ("--config", str(path), "--leader-elect", "true")
    await night.start(*flags, instance=1, kubeconfig=night.folder / "second")


async def one_is_stopped(night: Night) -> None:
    await night.daemon.stop()


# Restarting

_QUICK_LEASE = {
    "resourceName": NAME,
    "leaseDuration": "1500ms",
    "renewDeadline": "1s",
    "retryPeriod": "200ms",
}


async def the_lease_is_lost_again_and_again(night: Night) -> None:
    path = night.configuration(leaderElection=_QUICK_LEASE)
    flags = ("--config", str(path), "--leader-elect", "true")
    while not await night.is_firing("Restarting", {}):
        await night.start(*flags)
        await until(lambda: night.daemon.metric("leader_election_master_status"), what="a leader")
        night.respond(500, method="PUT", kind="leases.coordination.k8s.io")
        assert await night.daemon.ended() == 1
        night.write_status(lastState={"terminated": {"exitCode": 1, "reason": "Error"}})
        night.cluster.faults.clear()


# Stuck


async def nodes_cannot_be_listed(night: Night) -> None:
    night.respond(500, kind="nodes")
    night.add_pod("waits")
    await night.start(waits=False)


# Errors, ApiErrors, PendingPodsGrowing, Slow


def pods_arrive(night: Night, period_s: float = 0.3, n_pods: int = 1, **settings: Any) -> None:
    """Create pods all the time, on a node with room for them."""
    node = night.cluster.store.get(NODE, "", "node-0001")
    room = {"cpu": "100000", "memory": "1000Gi", "pods": "100000"}
    status = {**node["status"], "allocatable": room, "capacity": room}
    night.cluster.store.rewrite(NODE, {**node, "status": status})

    def create(number: int) -> None:
        for index in range(n_pods):
            night.add_pod(f"arrives-{number}-{index}", **settings)

    night.keep(create, period_s)


async def binds_fail(night: Night) -> None:
    night.respond(500, method="POST", path="/binding$")
    pods_arrive(night)


def _slow_binds(night: Night, delay_s: float) -> None:
    slow = Fault(Action.DELAY, method="POST", path="/binding$", delay_s=delay_s, times=1_000_000)
    night.cluster.faults.add(slow)


async def binds_are_slow_for_many_pods(night: Night) -> None:
    _slow_binds(night, 3.0)
    pods_arrive(night, 0.1, 10)


async def binds_take_seconds(night: Night) -> None:
    _slow_binds(night, 6.0)
    pods_arrive(night)


# UnschedulablePods


async def a_label_that_no_node_has(night: Night) -> None:
    night.add_pod("lost", node_selector={"disk": "ssd"})


async def a_node_gets_the_label(night: Night) -> None:
    night.edit_node("labels", disk="ssd")


# PluginSlow, LoopLag


async def the_cpu_is_throttled(night: Night) -> None:
    night.throttle(runs_s=0.25, stops_s=1.5)
    _serve_usage(night)


async def a_plugin_has_a_defect(night: Night) -> None:
    await night.daemon.stop()
    await night.start(module=("tests.monitoring.slow_plugin",))
    apart = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=nobody"))])
    pods_arrive(night, affinity=apart)


async def a_version_without_it(night: Night) -> None:
    await night.daemon.stop()
    await schedule(night)


async def unthrottled(night: Night) -> None:
    await night.unthrottle()


def _serve_usage(night: Night) -> None:
    """Serve the CPU time that the process really takes, as the metrics server does."""
    store, process = night.cluster.store, Path(f"/proc/{night.daemon.process.pid}/stat")
    store.create(CUSTOM_RESOURCE_DEFINITION, "", usage_definition())
    kind = store.kinds.of(USAGE, "PodMetrics")
    assert kind is not None
    deployed = store.get(POD, SYSTEM, f"{NAME}-0")["metadata"]
    metadata = {"name": deployed["name"], "labels": deployed["labels"]}

    def ticks() -> int:
        return sum(map(int, process.read_text().rpartition(")")[2].split()[11:13]))

    began_s, begin = time.monotonic(), ticks()
    store.create(kind, SYSTEM, {"apiVersion": USAGE, "kind": "PodMetrics", "metadata": metadata})

    def measure(_: int) -> None:
        cores = (ticks() - begin) / os.sysconf("SC_CLK_TCK") / max(time.monotonic() - began_s, 1.0)
        usage = {"cpu": f"{cores * 1e9:.0f}n", "memory": "64Mi"}
        containers = [{"name": "scheduler", "usage": usage}]
        moment = {"timestamp": "2026-01-01T00:00:00Z", "window": "15s"}
        stored = store.get(kind, SYSTEM, deployed["name"])
        store.rewrite(kind, {**stored, **moment, "containers": containers})

    night.keep(measure)


# PluginShutOff


async def own_rule(night: Night) -> None:
    await _start_with(night, RULE.replace("tem", "team"))


async def a_rule_with_a_bug(night: Night) -> None:
    await night.daemon.stop()
    await _start_with(night, RULE)
    for number in range(12):
        night.add_pod(f"team-{number}", labels={"team": "blue"})


async def a_corrected_rule(night: Night) -> None:
    await night.daemon.stop()
    await own_rule(night)


async def _start_with(night: Night, rule: str) -> None:
    (night.folder / "broken.py").write_text(rule)
    (night.folder / "config.yaml").write_text(CONFIG)
    await night.start(
        "--plugins", str(night.folder / "broken.py"), "--config", str(night.folder / "config.yaml")
    )


# WatchRestarts


async def connections_break(night: Night) -> None:
    night.cluster.faults.add(Fault(Action.CUT_STREAM, kind="nodes", after_events=2, times=1_000_000))
    night.keep(lambda number: night.edit_node("annotations", n=str(number)), 0.1)


# MalformedObjects


async def a_node_with_a_wrong_quantity(night: Night) -> None:
    """Whose kubelet writes it again and again."""
    broken = build.node("broken", allocatable={"cpu": "many"})
    broken["metadata"]["uid"] = "uid-broken"
    night.cluster.store.inject(NODE, broken)
    night.keep(lambda number: _touch(night, NODE, "", "broken", number))


async def the_quantity_is_corrected(night: Night) -> None:
    node = night.cluster.store.get(NODE, "", "broken")
    status = {**node["status"], "allocatable": {**node["status"]["allocatable"], "cpu": "4"}}
    night.cluster.store.rewrite(NODE, {**node, "status": status})


async def an_annotation_that_is_no_json(night: Night) -> None:
    night.add_pod("unreadable", annotations={AFFINITY: "no JSON"})
    night.keep(lambda number: _touch(night, POD, "default", "unreadable", number))


async def the_annotation_is_removed(night: Night) -> None:
    pod = night.cluster.store.get(POD, "default", "unreadable")
    night.cluster.store.rewrite(POD, {**pod, "metadata": {**pod["metadata"], "annotations": {}}})


def _touch(night: Night, kind: Kind, namespace: str, name: str, number: int) -> None:
    obj = night.cluster.store.get(kind, namespace, name)
    labels = {**(obj["metadata"].get("labels") or {}), "touched": str(number)}
    night.cluster.store.rewrite(kind, {**obj, "metadata": {**obj["metadata"], "labels": labels}})


# EventsDropped, Forbidden


def _take_right(night: Night, resource: str) -> None:
    """Remove the scheduler's rule on a resource, as roles of another version lack it."""
    role = night.cluster.store.get(CLUSTER_ROLE, "", NAME)
    rules = [rule for rule in role["rules"] if resource not in rule["resources"] or rule["verbs"] == ["list"]]
    assert len(rules) < len(role["rules"])
    night.cluster.store.rewrite(CLUSTER_ROLE, {**role, "rules": rules})


def _refused_pods_arrive(night: Night) -> None:
    """Create pods that fit nowhere, each of which gets a condition and an event."""
    night.keep(lambda number: night.add_pod(f"lost-{number}", node_selector={"no": "where"}))


async def no_right_to_create_events(night: Night) -> None:
    _take_right(night, "events")
    _refused_pods_arrive(night)


async def no_right_to_write_conditions(night: Night) -> None:
    _take_right(night, "pods/status")
    _refused_pods_arrive(night)


# EnforcementRefused, RulesStayBroken

_APART = rules(far=[build.term(build.ZONE, build.selector("app=web"))])


async def enforce_one(night: Night) -> None:
    await enforce(night, 1)


async def enforce(night: Night, n_pods: int = 5) -> None:
    """Run an enforcer over pods in one zone that keep away from a pod in the other."""
    await night.shop.nodes()
    for number in range(n_pods):
        await night.shop.pod(f"picky-{number}", "a1", _APART, labels={"app": "picky"})
    await night.shop.pod("web", "b1", labels={"app": "web"})
    night.add_pod_of(f"{NAME}-enforcer", SYSTEM)
    await night.enforce("--max-share", "10%")


async def a_node_gets_a_wrong_zone(night: Night) -> None:
    await night.shop.label_node("b1", "a")


async def the_zone_is_corrected(night: Night) -> None:
    await night.shop.label_node("b1", "b")


async def a_budget_forbids_the_eviction(night: Night) -> None:
    """Without the controller that counts pods, a budget allows no disruption."""
    budget = {
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": build.selector("app=picky")},
    }
    (await night.shop.api.post(night.shop.path("poddisruptionbudgets", group="apis/policy/v1"), budget)).ok  # noqa: B018
    pod = night.cluster.store.get(POD, "default", "picky-0")
    ready = [{"type": "Ready", "status": "True"}]
    status = {**pod["status"], "phase": "Running", "conditions": ready}
    night.cluster.store.rewrite(POD, {**pod, "status": status})
    await a_node_gets_a_wrong_zone(night)


async def the_budget_is_deleted(night: Night) -> None:
    path = night.shop.path("poddisruptionbudgets", group="apis/policy/v1")
    (await night.shop.api.delete(f"{path}/keep")).ok  # noqa: B018


# WebhookCertificateExpires

_WEBHOOK = f"{NAME}-webhook"


async def the_webhook_may_not_write_its_secret(night: Night) -> None:
    night.kubeconfig_of("webhook")
    night.add_pod_of(_WEBHOOK, _WEBHOOK)
    role = night.cluster.store.get(ROLE, _WEBHOOK, _WEBHOOK)
    (rule,) = role["rules"]
    night.cluster.store.rewrite(ROLE, {**role, "rules": [{**rule, "verbs": ["get"]}]})
    await night.admit()


async def apply_webhook_again(night: Night) -> None:
    await night.tried("WebhookCertificateExpires", "apply -k")
