"""The faults that alerts are about, each with the runbook's command that shows it and the remedy that ends the alert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.devcluster.http.faults import Action, Fault
from scheduler.devcluster.kinds import CLUSTER_ROLE, LEASE, NODE, POD, ROLE
from scheduler.model.annotations import AFFINITY
from tests.monitoring.night import SYSTEM, Act, Night
from tests.support import build
from tests.support.cluster import NAME
from tests.support.enforcer_driver import rules
from tests.support.waiting import until
from tests.testing.test_failing_rule import CONFIG, RULE


async def schedule(night: Night) -> None:
    """Start a scheduler."""
    await night.start()


async def no_more(night: Night) -> None:
    """Let the API server answer again."""
    night.cluster.faults.clear()


@dataclass(frozen=True)
class Row:
    """
    A fault of an alert.

    Attributes:
        alert: its name without the prefix.
        shows: what a command of the runbook shows of this fault, as a regular expression; by words of the command.
        begin: what runs before the fault, while the alert is silent; None if the fault is there from the start.
        labels: of the alert's series that is about the fault.
        range_s: seconds in the place of the rule's minutes.
        names: what stands for names in the command, such as POD.
        note: what is not as in a cluster, and why.
    """

    alert: str
    fault: Act
    shows: Mapping[str, str]
    remedy: Act
    begin: Act | None = schedule
    labels: Mapping[str, str] = field(default_factory=dict)
    range_s: float = 3.0
    names: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def __str__(self) -> str:
        return f"{self.alert}: {self.fault.__name__.replace('_', ' ')}"


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


async def elect(night: Night, **flags: str) -> None:
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
    while not await night.alerts("Restarting", {}):
        await night.start(*flags)
        await until(lambda: night.daemon.metric("leader_election_master_status"), what="a leader")
        night.respond(500, method="PUT", kind="leases.coordination.k8s.io")
        assert await night.daemon.ended() == 1
        night.cluster.faults.clear()


# Stuck


async def nodes_cannot_be_listed(night: Night) -> None:
    night.respond(500, kind="nodes")
    night.add_pod("waits")
    await night.start(waits=False)


# Errors, ApiErrors, PendingPodsGrowing, Slow


def pods_arrive(night: Night, period_s: float = 0.3, n_pods: int = 1) -> None:
    """Create pods all the time, on a node with room for them."""
    node = night.cluster.store.get(NODE, "", "node-0001")
    room = {"cpu": "100000", "memory": "1000Gi", "pods": "100000"}
    status = {**node["status"], "allocatable": room, "capacity": room}
    night.cluster.store.rewrite(NODE, {**node, "status": status})

    def create(number: int) -> None:
        for index in range(n_pods):
            night.add_pod(f"arrives-{number}-{index}")

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
    _measure(night)


async def the_cpu_is_throttled_with_many_pods(night: Night) -> None:
    rule = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=web"))])

    def create(number: int) -> None:
        for index in range(20):
            labels = {"app": "web" if index == 0 else f"a{number}"}
            night.add_pod(f"p-{number}-{index}", labels=labels, affinity=rule)

    night.keep(create)
    night.throttle(runs_s=0.005, stops_s=0.2)


async def unthrottled(night: Night) -> None:
    await night.unthrottle()


def _measure(night: Night) -> None:
    """Create what the metrics server has of the pod."""
    definition = custom_kinds.definition("metrics.k8s.io/v1beta1")


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


def _touch(night: Night, kind, namespace: str, name: str, number: int) -> None:
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
    await night.enforce("--max-share", "10%")


async def a_node_gets_a_wrong_zone(night: Night) -> None:
    await night.shop.label_node("b1", "a")


async def the_zone_is_corrected(night: Night) -> None:
    await night.shop.label_node("b1", "b")


async def a_budget_forbids_the_eviction(night: Night) -> None:
    """Without the controller that counts pods, a budget allows no disruption."""
    budget = {"metadata": {"name": "keep"}, "spec": {"minAvailable": 1, "selector": build.selector("app=picky")}}
    (await night.shop.api.post(night.shop.path("poddisruptionbudgets", group="apis/policy/v1"), budget)).ok  # noqa: B018
    await a_node_gets_a_wrong_zone(night)


async def the_budget_is_deleted(night: Night) -> None:
    path = night.shop.path("poddisruptionbudgets", group="apis/policy/v1")
    (await night.shop.api.delete(f"{path}/keep")).ok  # noqa: B018


# WebhookCertificateExpires

_WEBHOOK = f"{NAME}-webhook"


async def the_webhook_may_not_write_its_secret(night: Night) -> None:
    night.kubeconfig_of("webhook")
    pod = build.pod("webhook", namespace=_WEBHOOK, labels={"app.kubernetes.io/name": _WEBHOOK}, node_name="node-0001")
    del pod["metadata"]["uid"]
    night.cluster.store.create(POD, _WEBHOOK, pod)
    role = night.cluster.store.get(ROLE, _WEBHOOK, _WEBHOOK)
    (rule,) = role["rules"]
    night.cluster.store.rewrite(ROLE, {**role, "rules": [{**rule, "verbs": ["get"]}]})
    await night.admit()


async def apply_webhook_again(night: Night) -> None:
    await night.tried("WebhookCertificateExpires", "apply -k")


_KUBELET = "its pod's status is written by the test: the embedded cluster has no kubelet for it"

ROWS = (
    Row(
        "Down",
        a_wrong_configuration,
        {"get pods": rf"{NAME}-0 +0/1 +\w+ +3 ", "logs --previous": "parallelism.*many"},
        a_right_configuration,
        note=_KUBELET,
    ),
    Row(
        "NoLeader",
        another_program_holds_the_lease,
        {"get lease": "holderIdentity: another-program"},
        the_lease_is_released,
        begin=elect,
    ),
    Row(
        "TwoLeaders",
        two_namespaces_of_leases,
        {"get leases": rf"default +{NAME} [\s\S]*{SYSTEM} +{NAME} "},
        one_is_stopped,
        begin=elect,
    ),
    Row(
        "Restarting",
        the_lease_is_lost_again_and_again,
        {"logs --previous": "was not renewed in time"},
        schedule,
        begin=None,
        range_s=30,
    ),
    Row(
        "Stuck",
        nodes_cannot_be_listed,
        {"bundle": r"\[-\]sched-handler-sync"},
        no_more,
        begin=None,
    ),
    Row("Errors", binds_fail, {"logs": "Error scheduling pod; retrying.*arrives-0-0.*a fault was"}, no_more),
    Row("PendingPodsGrowing", binds_are_slow_for_many_pods, {"ui": "a"}, no_more),
    Row(
        "UnschedulablePods",
        a_label_that_no_node_has,
        {"get events": "pod/lost .*1 node.s. didn't match Pod's node affinity", "explain": "disk"},
        a_node_gets_the_label,
        labels={"plugin": "NodeAffinity"},
        names={"POD": "lost"},
    ),
    Row("Slow", binds_take_seconds, {"ui": "a"}, no_more),
    Row(
        "PluginShutOff",
        a_rule_with_a_bug,
        {"get events": r"KeyError: 'tem' \(broken.py, line 10\)"},
        a_corrected_rule,
        begin=own_rule,
    ),
    Row(
        "WatchRestarts",
        connections_break,
        {"logs": 'List and watch interrupted.*kind="Node".*TransferEncodingError'},
        no_more,
        labels={"kind": "Node"},
        range_s=8,
    ),
    Row(
        "MalformedObjects",
        a_node_with_a_wrong_quantity,
        {"logs": "Malformed object.*broken.*many"},
        the_quantity_is_corrected,
        labels={"kind": "Node"},
    ),
    Row(
        "MalformedObjects",
        an_annotation_that_is_no_json,
        {"logs": "Malformed object.*unreadable"},
        the_annotation_is_removed,
        labels={"kind": "Pod"},
    ),
    Row("EventsDropped", no_right_to_create_events, {"auth can-i": "^no"}, apply_again),
    Row("ApiErrors", binds_fail, {"logs": "Error scheduling pod; retrying.*a fault was"}, no_more),
    Row(
        "Forbidden",
        no_right_to_write_conditions,
        {"auth can-i --list": r"\A(?![\s\S]*pods/status)[\s\S]*pods/binding"},
        apply_again,
    ),
    Row("PluginSlow", the_cpu_is_throttled_with_many_pods, {"bundle": "a"}, unthrottled),
    Row(
        "LoopLag",
        the_cpu_is_throttled,
        {"top pods": rf"{NAME}-0 +\d{{1,2}}m"},
        unthrottled,
        range_s=12,
    ),
    Row(
        "EnforcementRefused",
        a_node_gets_a_wrong_zone,
        {"enforce --once": r"default/picky-0 .*zone=a +default/web"},
        the_zone_is_corrected,
        begin=enforce,
    ),
    Row(
        "RulesStayBroken",
        a_budget_forbids_the_eviction,
        {"enforce --once": r"default/picky-0 .*default/web"},
        the_budget_is_deleted,
        begin=enforce_one,
    ),
    Row(
        "WebhookCertificateExpires",
        the_webhook_may_not_write_its_secret,
        {"logs": "Failed to check the serving certificate.*secrets"},
        apply_webhook_again,
        begin=None,
    ),
)
