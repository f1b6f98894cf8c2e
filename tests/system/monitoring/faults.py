"""The faults that alerts are about, and their remedies, each done to the cluster of a `Incident`."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import (
    CLUSTER_ROLE,
    CUSTOM_RESOURCE_DEFINITION,
    LEASE,
    NODE,
    POD,
    ROLE,
)
from tests.support import build
from tests.support.cluster import NAME
from tests.support.custom_kinds import USAGE, kind_at, usage_definition
from tests.support.enforcer_driver import rules
from tests.support.failing_rule import CONFIG, RULE
from tests.support.waiting import until
from tests.system.monitoring.incident import SYSTEM, Incident


async def schedule(incident: Incident) -> None:
    """Start a scheduler."""
    await incident.start()


async def no_more(incident: Incident) -> None:
    """Let the API server answer again."""
    incident.cluster.faults.clear()


# Down


async def a_wrong_configuration(incident: Incident) -> None:
    """Its pod is replaced by one that ends at once, which a kubelet would start again."""
    await incident.daemon.stop()
    path = incident.configuration(parallelism="many")
    daemon = await incident.start("--config", str(path), waits=False)
    assert await daemon.ended() == 2
    incident.write_status(ready=False, restartCount=3, state={"waiting": {"reason": "CrashLoopBackOff"}})


async def a_right_configuration(incident: Incident) -> None:
    await incident.start("--config", str(incident.configuration()))


# NoLeader


async def elect(incident: Incident) -> None:
    await incident.start("--config", str(incident.configuration()), "--leader-elect", "true")


async def another_program_holds_the_lease(incident: Incident) -> None:
    spec = {"holderIdentity": "another-program", "leaseDurationSeconds": 3600}
    incident.cluster.store.create(LEASE, SYSTEM, {"metadata": {"name": NAME}, "spec": spec})
    await elect(incident)


async def the_lease_is_released(incident: Incident) -> None:
    """As the other program does at its end, once it has a name of its own."""
    lease = incident.cluster.store.get(LEASE, SYSTEM, NAME)
    spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
    incident.cluster.store.rewrite(LEASE, {**lease, "spec": spec})


async def apply_again(incident: Incident) -> None:
    """As the runbook says."""
    incident.write_kustomization("manifests")
    await incident.tried("Forbidden", "apply -k")


# TwoLeaders


async def two_namespaces_of_leases(incident: Incident) -> None:
    incident.cluster.write_kubeconfig(incident.folder / "second")
    election = {"resourceName": NAME, "resourceNamespace": "default"}
    path = incident.configuration(leaderElection=election)
    flags = ("--config", str(path), "--leader-elect", "true")
    await incident.start(*flags, instance=1, kubeconfig=incident.folder / "second")


async def one_is_stopped(incident: Incident) -> None:
    await incident.daemon.stop()


# Restarting

_QUICK_LEASE = {
    "resourceName": NAME,
    "leaseDuration": "1500ms",
    "renewDeadline": "1s",
    "retryPeriod": "200ms",
}


async def the_lease_is_lost_again_and_again(incident: Incident) -> None:
    path = incident.configuration(leaderElection=_QUICK_LEASE)

    async def has_led() -> bool:
        is_over = incident.daemon.process.returncode is not None
        return is_over or await incident.daemon.metric("leader_election_master_status") == 1

    async def restart() -> None:
        while True:
            # On a slow machine the Lease may be lost before the port is ready.
            await incident.start("--config", str(path), "--leader-elect", "true", waits=False)
            await until(has_led, what="a leader")
            incident.respond(500, method="PUT", kind="leases.coordination.k8s.io")
            assert await incident.daemon.ended() == 1
            incident.write_status(lastState={"terminated": {"exitCode": 1, "reason": "Error"}})
            incident.cluster.faults.clear()

    incident.disturb(restart())


async def the_lease_can_be_renewed(incident: Incident) -> None:
    await incident.calm()
    await incident.daemon.stop()
    await no_more(incident)
    await elect(incident)


# Stuck


async def nodes_cannot_be_listed(incident: Incident) -> None:
    incident.respond(500, kind="nodes")
    incident.add_pod("waits")
    await incident.start(waits=False)


# Errors, ApiErrors, PendingPodsGrowing, Slow


def pods_arrive(incident: Incident, period_s: float = 0.3, n_pods: int = 1, **settings: Any) -> None:
    """Create pods all the time, on a node with room for them."""
    node = incident.cluster.store.get(NODE, "", "node-0001")
    room = {"cpu": "100000", "memory": "1000Gi", "pods": "100000"}
    status = {**node["status"], "allocatable": room, "capacity": room}
    incident.cluster.store.rewrite(NODE, {**node, "status": status})

    def create(number: int) -> None:
        for index in range(n_pods):
            incident.add_pod(f"arrives-{number}-{index}", **settings)

    incident.keep(create, period_s)


async def binds_fail(incident: Incident) -> None:
    incident.respond(500, method="POST", path="/binding$")
    pods_arrive(incident)


def _slow_binds(incident: Incident, delay_s: float) -> None:
    slow = Fault(Effect.DELAY, method="POST", path="/binding$", delay_s=delay_s, times=1_000_000)
    incident.cluster.faults.add(slow)


async def binds_are_slow_for_many_pods(incident: Incident) -> None:
    _slow_binds(incident, 3.0)
    pods_arrive(incident, 0.1, 10)


async def binds_take_seconds(incident: Incident) -> None:
    _slow_binds(incident, 6.0)
    pods_arrive(incident)


# UnschedulablePods


async def a_label_that_no_node_has(incident: Incident) -> None:
    incident.add_pod("lost", node_selector={"disk": "ssd"})


async def a_node_gets_the_label(incident: Incident) -> None:
    incident.label(NODE, "", "node-0001", disk="ssd")


# PluginSlow, LoopLag


async def the_cpu_is_throttled(incident: Incident) -> None:
    """The kernel lets it run for a part of the time, as with a limit on its CPU, only in longer pieces."""
    process = incident.daemon.process

    async def throttle() -> None:
        while True:
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(1.5)
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.25)

    incident.disturb(throttle())
    _serve_usage(incident)


async def a_plugin_has_a_defect(incident: Incident) -> None:
    await incident.daemon.stop()
    await incident.start(module=("tests.system.monitoring.slow_plugin",))
    apart = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=nobody"))])
    # One cycle of ten is timed; with more pods no scrape would be answered in time.
    pods_arrive(incident, affinity=apart)


async def a_version_without_it(incident: Incident) -> None:
    await incident.daemon.stop()
    await schedule(incident)


async def unthrottled(incident: Incident) -> None:
    await incident.calm()
    incident.daemon.process.send_signal(signal.SIGCONT)


def _serve_usage(incident: Incident) -> None:
    """Serve the CPU time that the process really takes, as the metrics server does."""
    store, process = incident.cluster.store, Path(f"/proc/{incident.daemon.process.pid}/stat")
    store.create(CUSTOM_RESOURCE_DEFINITION, "", usage_definition())
    kind = kind_at(store, USAGE, "pods")
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

    incident.keep(measure)


# PluginFails


async def a_rule_with_a_bug(incident: Incident) -> None:
    """It is switched on; the bug is in what it does with pods of a team."""
    await _start_with(incident, RULE)


async def pods_of_a_team(incident: Incident) -> None:
    for number in range(12):
        incident.add_pod(f"team-{number}", labels={"team": "blue"})


async def a_corrected_rule(incident: Incident) -> None:
    await incident.daemon.stop()
    await _start_with(incident, RULE.replace("tem", "team"))


async def _start_with(incident: Incident, rule: str) -> None:
    (incident.folder / "broken.py").write_text(rule)
    (incident.folder / "config.yaml").write_text(CONFIG)
    await incident.start(
        "--plugins", str(incident.folder / "broken.py"), "--config", str(incident.folder / "config.yaml")
    )


# WatchRestarts


async def connections_break(incident: Incident) -> None:
    incident.cluster.faults.add(Fault(Effect.CUT_STREAM, kind="nodes", after_events=2, times=1_000_000))
    incident.keep(lambda number: incident.label(NODE, "", "node-0001", written=str(number)), 0.1)


# MalformedObjects


async def a_program_writes_a_wrong_quantity(incident: Incident) -> None:
    broken = build.node("broken", allocatable={"cpu": "many"})
    broken["metadata"]["uid"] = "uid-broken"
    incident.cluster.store.rewrite(NODE, broken)


async def the_quantity_is_corrected(incident: Incident) -> None:
    node = incident.cluster.store.get(NODE, "", "broken")
    status = {**node["status"], "allocatable": {"cpu": "4"}}
    incident.cluster.store.rewrite(NODE, {**node, "status": status})


# EventsDropped, Forbidden


def _take_right(incident: Incident, resource: str) -> None:
    """Remove the scheduler's rule on a resource, as roles of another version lack it."""
    role = incident.cluster.store.get(CLUSTER_ROLE, "", NAME)
    rules = [rule for rule in role["rules"] if resource not in rule["resources"] or rule["verbs"] == ["list"]]
    assert len(rules) < len(role["rules"])
    incident.cluster.store.rewrite(CLUSTER_ROLE, {**role, "rules": rules})


def _refused_pods_arrive(incident: Incident) -> None:
    """Create pods that fit nowhere, each of which gets a condition and an event."""
    incident.keep(lambda number: incident.add_pod(f"lost-{number}", node_selector={"no": "where"}))


async def no_right_to_create_events(incident: Incident) -> None:
    _take_right(incident, "events")
    _refused_pods_arrive(incident)


async def no_right_to_write_conditions(incident: Incident) -> None:
    _take_right(incident, "pods/status")
    _refused_pods_arrive(incident)


# EnforcementRefused, RulesStayBroken

_APART = rules(far=[build.term(build.ZONE, build.selector("app=web"))])


async def enforce_one(incident: Incident) -> None:
    await enforce(incident, 1)


async def enforce(incident: Incident, n_pods: int = 5) -> None:
    """Run an enforcer over pods in one zone that keep away from a pod in the other."""
    await incident.shop.nodes()
    for number in range(n_pods):
        await incident.shop.pod(f"picky-{number}", "a1", _APART, labels={"app": "picky"})
    await incident.shop.pod("web", "b1", labels={"app": "web"})
    incident.add_pod_of(f"{NAME}-enforcer", SYSTEM)
    await incident.enforce("--max-share", "10%")


async def a_node_gets_a_wrong_zone(incident: Incident) -> None:
    await incident.shop.label_node("b1", "a")


async def the_zone_is_corrected(incident: Incident) -> None:
    await incident.shop.label_node("b1", "b")


async def a_budget_forbids_the_eviction(incident: Incident) -> None:
    """Without the controller that counts pods, a budget allows no disruption."""
    shop, spec = incident.shop, {"minAvailable": 1, "selector": build.selector("app=picky")}
    budgets = shop.path("poddisruptionbudgets", group="apis/policy/v1")
    assert (await shop.api.post(budgets, {"metadata": {"name": "keep"}, "spec": spec})).ok
    pod = incident.cluster.store.get(POD, "default", "picky-0")
    ready = [{"type": "Ready", "status": "True"}]
    status = {**pod["status"], "phase": "Running", "conditions": ready}
    incident.cluster.store.rewrite(POD, {**pod, "status": status})
    await a_node_gets_a_wrong_zone(incident)


async def the_budget_is_deleted(incident: Incident) -> None:
    path = incident.shop.path("poddisruptionbudgets/keep", group="apis/policy/v1")
    assert (await incident.shop.api.delete(path)).ok


# WebhookCertificateExpires

_WEBHOOK = f"{NAME}-webhook"


async def the_webhook_may_not_write_its_secret(incident: Incident) -> None:
    incident.kubeconfig_of("webhook")
    incident.add_pod_of(_WEBHOOK, _WEBHOOK)
    role = incident.cluster.store.get(ROLE, _WEBHOOK, _WEBHOOK)
    (rule,) = role["rules"]
    incident.cluster.store.rewrite(ROLE, {**role, "rules": [{**rule, "verbs": ["get"]}]})
    await incident.admit()


async def apply_webhook_again(incident: Incident) -> None:
    incident.write_kustomization("manifests/webhook")
    await incident.tried("WebhookCertificateExpires", "apply -k")
