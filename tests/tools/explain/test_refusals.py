"""Refusals of each kind: which nodes, by which rules, and the changes that would help."""

from __future__ import annotations

import random
from itertools import chain
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.changes import LabelNode, RemovePod
from scheduler.engine.model.pod_groups import GroupKey, GroupKind, PodGroup
from scheduler.tools.explain.explainer import explain
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.formats.manifests import parse_manifest
from scheduler.tools.explain.scenarios import simulate_manifests
from tests.support import build
from tests.support.build import HOSTNAME, ZONE, Json, affinity, selector, spread, term
from tests.support.cases.volume_rows import using
from tests.support.driving import NAME
from tests.support.json_cluster import (
    Cluster,
    alone_per_zone,
    changes,
    decoded,
    encoded,
    groups,
    loaded,
    web,
    zoned,
)
from tests.support.storage_objects import claim, storage_class
from tests.support.workloads import workload
from tests.tools.explain.told import case, check, kinds_of, texts, told

GPU = "dedicated=gpu:NoSchedule"
CORDONED = "node.kubernetes.io/unschedulable:NoSchedule"
NOT_READY = "node.kubernetes.io/not-ready:NoSchedule"
ZONE_TYPO = "topolgy.kubernetes.io/zone"
WEB = selector("app=web")


def nodes(names: str, **more: Any) -> list[Json]:
    return [build.node(name, **more) for name in names.split()]


def sized(**cpus: str) -> list[Json]:
    return [build.node(name, allocatable={"cpu": cpu}) for name, cpu in cpus.items()]


def requesting(name: str, node: str | None = None, *ports: str, **amounts: str) -> Json:
    container = build.container(requests=amounts or None, host_ports=ports)
    return build.pod(name, node=node, containers=[container])


def beside(app: str, key: str = ZONE, **more: Any) -> Json:
    return affinity(required=[term(key, selector(f"app={app}"), **more)])


def of_revision(number: int, name: str, node: str | None = None, **more: Any) -> Json:
    """Return a pod of the Deployment web."""
    labels = {"app": "web", "pod-template-hash": f"{number}"}
    return build.pod(
        name, node=node, labels=labels, owner=build.owned_by("ReplicaSet", f"web-{number}"), **more
    )


def control_plane(field: str, **more: Any) -> tuple[list[Json], list[Json], Json]:
    """Return an empty node that takes no such pod, two with one each, and a pod of a spread with the field Ignore."""
    made = [
        build.node("control", labels={"role": "control"}, **more),
        *nodes("w1 w2", labels={"role": "worker"}),
    ]
    apart = [{**spread(HOSTNAME, WEB), field: "Ignore"}]
    where: dict[str, Any] = {} if more else {"node_selector": {"role": "worker"}}
    return made, [web(f"on-{name}", name) for name in ("w1", "w2")], web("p", spread=apart, **where)


def prior(name: str, priority: int, **more: Any) -> Json:
    return build.pod(name, cpu="1", spec={"priority": priority, **more.pop("spec", {})}, **more)


def nominated(node: str, priority: int = 9, **spec: Any) -> Json:
    return {**prior("high", priority, spec=spec), "status": {"nominatedNodeName": node}}


EQUAL, LOW, LOWER = (prior(name, n, node="a") for name, n in (("equal", 9), ("low", 1), ("lower", 0)))
PREEMPTED = prior("low", 1, node="a", terminating=True, phase="Running")
PREEMPTED["status"]["conditions"] = [
    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
]
ON_SSD = build.pod(node_selector={"disk": "ssd"})
IN_ROWS, BESIDE_WEB = web("p", spread=[spread("row", WEB)]), build.pod(affinity=beside("web", "row"))
LONELY = build.pod("lonely", node="a2", affinity=alone_per_zone())
AGENT = build.pod("agent", node="a", cpu="1", owner=build.owned_by("DaemonSet", "agent"))
#: Affinity to pods of all namespaces with a label.
INTO_CORE = build.pod(affinity=beside("cache", namespace_selector=selector("team=core")))
ONE_PER_ZONE = [of_revision(1, f"r-{zone}", f"{zone}1", affinity=alone_per_zone()) for zone in "abc"]
ENDING = [build.pod("r-a", node="a1", labels=ONE_PER_ZONE[0]["metadata"]["labels"], terminating=True)]
ENDING[0]["metadata"] |= {"ownerReferences": ONE_PER_ZONE[0]["metadata"]["ownerReferences"]}
ENDING[0]["spec"]["affinity"] = alone_per_zone()
TAINTS_IGNORED, ON_THEM, SPREAD = control_plane(
    "nodeTaintsPolicy", taints=["node-role.kubernetes.io/control-plane:NoSchedule"]
)
ALL_COUNTED, _, SELECTING = control_plane("nodeAffinityPolicy")


POD, TAINTS = build.pod(), "TolerateTaint RemoveTaint"
BY_REVISION = "RollOutInPlace AddMatchLabelKey RecreateWithMatchLabelKey"
COMPARED = build.pod(affinity=affinity(node_required=[build.node_term("gen gt 4", "load lt 5", "!old")]))
EMPTY_TERM = build.pod(affinity=affinity(node_required=[build.node_term()]))
MALFORMED = build.pod(affinity=affinity(required=[term(ZONE, {"matchLabels": {"a": "-"}})]))
TWO_PORTS = requesting("p", None, "53/UDP", "10.0.0.1:53", "80")
ON_PORTS = [requesting("dns", "a", "53/UDP", "10.0.0.1:53"), requesting("web", "b", "53/UDP")]
SMALL, LARGE = {"cpu": "4", "memory": "8Gi"}, {"cpu": "6", "memory": "100Gi", "pods": "9"}
ON_LARGE = [requesting(f"on-{name}", name, cpu="2", memory="92Gi") for name in "ab"]
NO_SUCH = requesting("p", **{"cpu": "5", "memory": "8Gi", "a.example.com/x": "1"})
GPU_NODE = build.node("a", allocatable={"cpu": "4", "nvidia.com/gpu": "1"})
TAINTED = build.node("large", allocatable={"cpu": "4"}, taints=[GPU])
ON_A_AND_B = (("a1", "1"), ("a2", "2500m"), ("b1", "2"), ("b2", "1500m"))
APART, SPREAD_WEB = web("p", affinity=alone_per_zone()), web("p", spread=[spread(ZONE, WEB)])
CACHE = build.pod("cache", namespace="shared", labels={"app": "cache"}, node="a1")
CORE = build.namespace("shared", labels={"team": "core"})
OLD = of_revision(1, "old", "a1")
OLD_APART, NEW_APART = (
    of_revision(*names, affinity=alone_per_zone()) for names in ((1, "old", "a1"), (2, "new"))
)
NEW_SPREAD = of_revision(2, "p", spread=[spread(ZONE, WEB, min_domains=2)])
ONE_MORE = of_revision(1, "new", affinity=alone_per_zone())


@pytest.mark.parametrize(
    ("cluster", "pod", "kinds"),
    [
        case("a taint", nodes("a b", taints=[GPU]), POD, TAINTS),
        case(
            "two taints", nodes("a", taints=["team=b:NoExecute", GPU, "slow:PreferNoSchedule"]), POD, TAINTS
        ),
        case("a cordon and its taint", nodes("a", unschedulable=True, taints=[CORDONED]), POD, "Uncordon"),
        case(
            "a node's own trouble is not to be tolerated", nodes("a", taints=[NOT_READY]), POD, "RemoveTaint"
        ),
        case("a label", [*nodes("a"), *nodes("b", labels={"disk": "hdd"})], ON_SSD, "LabelNode"),
        case(
            "labels compared",
            nodes("a", labels={"gen": "3", "load": "7", "old": "yes"}),
            COMPARED,
            "LabelNode",
        ),
        case("an empty term, which no label satisfies", nodes("a"), EMPTY_TERM),
        case("a zone that no node is in", zoned("a1 b1"), build.pod(node_selector={ZONE: "zone-aa"})),
        case("a misspelt key of nodeSelector", zoned("a1 b1"), build.pod(node_selector={ZONE_TYPO: "a"})),
        case("a misspelt key of a spread", zoned("a1 b1"), web("p", spread=[spread(ZONE_TYPO, WEB)])),
        case("a misspelt key of affinity", zoned("a1 b1"), build.pod(affinity=beside("web", ZONE_TYPO))),
        case(
            "room, by as few pods as possible",
            sized(a="4", b="4"),
            build.pod(cpu="2500m"),
            "RemovePod AddRoom",
            pods=[build.pod(name, node=name[0], cpu=cpu) for name, cpu in ON_A_AND_B],
        ),
        case("a pod's place", nodes("a", allocatable={"pods": "1"}), POD, "RemovePod AddRoom", pods=[EQUAL]),
        case("a daemon's pod would come back", sized(a="2"), build.pod(cpu="2"), "AddRoom", pods=[AGENT]),
        case("host ports, of which one is in use", nodes("a b"), TWO_PORTS, "RemovePod", pods=ON_PORTS),
        case(
            "two resources",
            nodes("a b", allocatable=LARGE),
            requesting("p", cpu="5", memory="100Gi"),
            "RemovePod AddRoom",
            pods=ON_LARGE,
        ),
        case("a resource that no node has, and one that suffices", nodes("a", allocatable=SMALL), NO_SUCH),
        case("a misspelt resource", [GPU_NODE, *nodes("b")], requesting("p", **{"nvidia.com/gpus": "1"})),
        case("more than any node has", sized(a="4", b="3500m"), build.pod(cpu="64")),
        case(
            "room, on the nodes that are short of the least",
            [*sized(n1="1", n3="3", n2="2"), TAINTED],
            build.pod(cpu="4"),
            f"{TAINTS} AddRoom",
        ),
        case(
            "anti-affinity of the pod",
            zoned("a1 a2 b1"),
            APART,
            "RemovePod",
            pods=[web("one", "a1", affinity=alone_per_zone()), web("two", "b1")],
        ),
        case("anti-affinity of a running pod", zoned("a1 a2"), web("p"), "RemovePod", pods=[LONELY]),
        case(
            "affinity to pods that do not run", zoned("a1 b1"), build.pod(affinity=beside("cache")), "RunPod"
        ),
        case(
            "affinity into a namespace that lacks the label",
            zoned("a1"),
            INTO_CORE,
            "LabelNamespace",
            pods=[CACHE],
            namespaces=[build.namespace("shared"), build.namespace("default")],
        ),
        case("affinity to pods of another namespace", zoned("a1"), INTO_CORE, "RunPod", namespaces=[CORE]),
        case("affinity that does not parse", nodes("a b"), MALFORMED),
        case(
            "a topology label that is missing",
            [*zoned("a1"), *nodes("bare")],
            web("p", affinity=alone_per_zone(), spread=[spread(ZONE, WEB)]),
            "RemovePod",
            pods=[web("one", "a1")],
        ),
        case("a label that no node has, of a spread", nodes("a b"), IN_ROWS, "LabelNode"),
        case("of affinity to a pod", nodes("a b"), BESIDE_WEB, "LabelNode", pods=[web("one", "b")]),
        case("of affinity to no pod", nodes("a b"), BESIDE_WEB, "LabelNode RunPod"),
        case(
            "a spread whose emptiest zone is closed",
            [*zoned("a1 b1"), *zoned("c1", taints=[GPU])],
            SPREAD_WEB,
            f"HonorPolicy {TAINTS} RemovePod AllowSkew",
            pods=[web("one", "a1"), web("two", "b1")],
        ),
        case(
            "a spread that counts a node of other taints",
            TAINTS_IGNORED,
            SPREAD,
            f"HonorPolicy {TAINTS} RemovePod AllowSkew",
            pods=ON_THEM,
        ),
        case(
            "a spread that counts a node of other labels",
            ALL_COUNTED,
            SELECTING,
            "HonorPolicy LabelNode RemovePod AllowSkew",
            pods=ON_THEM,
        ),
        case("a rollout, both revisions apart", zoned("a1"), NEW_APART, BY_REVISION, pods=[OLD_APART]),
        case("the new one apart", zoned("a1"), NEW_APART, "RollOutInPlace AddMatchLabelKey", pods=[OLD]),
        case("the old one apart", zoned("a1"), of_revision(2, "p"), "RollOutInPlace", pods=[OLD_APART]),
        case(
            "a spread that counts the old revision",
            zoned("a1"),
            NEW_SPREAD,
            "RollOutInPlace AddMatchLabelKey AllowSkew",
            pods=[OLD],
        ),
        case(
            "a rollout without room for a surge", zoned("a1 b1 c1"), NEW_APART, BY_REVISION, pods=ONE_PER_ZONE
        ),
        # Its controller would make one like it in its place, and has done so for one that is being deleted.
        case("a replica leaves for no other", zoned("a1 b1 c1"), ONE_MORE, pods=ONE_PER_ZONE),
        case("but one deleted", zoned("a1 b1 c1"), ONE_MORE, "RemovePod", pods=[*ENDING, *ONE_PER_ZONE[1:]]),
        case("preemption", sized(a="2"), prior("high", 9), "RemovePod AddRoom", pods=[LOW, LOWER]),
        case("preempted pods end", sized(a="1"), nominated("a"), "RemovePod AddRoom", pods=[PREEMPTED]),
        case("nominated to no node", sized(a="1"), nominated("b"), "RemovePod AddRoom", pods=[EQUAL]),
        case("nominated in vain", sized(a="1"), nominated("a"), "RemovePod AddRoom", pods=[EQUAL]),
    ],
)
def test_what_refuses_a_pod_is_told_with_what_would_help(
    cluster: Cluster, pod: Json, kinds: str, snapshot: SnapshotAssertion
) -> None:
    check(cluster, pod, kinds, snapshot)


CHEAP = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}


@pytest.mark.parametrize(
    ("on_a", "on_b", "helps"),
    [
        pytest.param({}, CHEAP, True, id="the cheapest"),
        pytest.param(CHEAP, {"phase": "Running"}, False, id="another is cheaper"),
        pytest.param({"phase": "Running"}, {}, True, id="one that has not started"),
        pytest.param({}, {}, False, id="the last of those that are alike"),
    ],
)
def test_a_rollout_takes_the_pod_that_its_controller_deletes_first(
    on_a: Json, on_b: Json, *, helps: bool
) -> None:
    """The new pod may go to zone b alone."""
    old = [of_revision(1, "old-2", "a1", cpu="2", **on_a), of_revision(1, "old-1", "b1", cpu="2", **on_b)]
    new = of_revision(2, "new", cpu="1", node_selector={ZONE: "b"})
    answer = Cluster(zoned("a1 b1", allocatable={"cpu": "2"}), old).explain(new)
    assert ("RollOutInPlace" in kinds_of(answer)) == helps


def test_a_nodes_name_that_is_too_long_for_a_label_is_cut() -> None:
    name = f"{'n' * 62}.example.com"
    (suggestion,) = Cluster([build.node(name)]).explain(web("p", spread=[spread("row", WEB)])).suggestions
    assert suggestion.changes == (LabelNode(name, "row", "n" * 62),)


def test_many_nodes_are_a_few_groups() -> None:
    """Hostname domains are one group, and only three nodes of a group are named."""
    pods = [web(f"w{i}", f"n{i}") for i in range(300)]
    per_host = affinity(anti_required=[term(HOSTNAME, WEB)])
    answer = Cluster(nodes(" ".join(f"n{i}" for i in range(300))), pods).explain(web("p", affinity=per_host))
    assert groups(answer) == [(300, "InterPodAffinity", HOSTNAME)]
    assert answer.groups[0].examples == ("n0", "n1", "n10")
    (rule,) = answer.rules
    assert (rule.pods.n_total, len(rule.pods.shown)) == (300, 20)
    assert (len(rule.domains), rule.n_more_domains) == (100, 200)


GONE, ON_A = build.pod(node="gone"), build.pod(node="a")
LATER = build.pod(tolerations=[{"key": "k", "operator": "Gt", "value": "1"}])
MISSPELT = build.pod(annotations={"affinity-scheduler.io/afinity": "{}"})
STARTED = {**GONE, "status": {**GONE["status"], "startTime": "2026-01-01T00:00:00Z"}}


NAMED = build.pod(affinity=affinity(node_required=[build.node_term(named=["in a"])]))
GATED = build.pod(spec={"schedulingGates": [{"name": "g"}]})
BAD_SPREAD = build.pod(spread=[spread(ZONE, {"matchLabels": {"a": "-"}})])
CLOSED = nodes("a", taints=["x:NoSchedule"])
BY_TYPO, IN_CACHENS = term(ZONE_TYPO, {}), term(ZONE, {}, namespaces=["cachens", "default"])
ANTI_TYPO = build.pod(affinity=affinity(anti_required=[BY_TYPO]))
PREFERRED = affinity(preferred=[(1, BY_TYPO)], anti_preferred=[(1, BY_TYPO), (2, BY_TYPO)])
SOFT_TYPO = build.pod(node="a", affinity=PREFERRED, spread=[spread(ZONE_TYPO, {}, soft=True)])
IN_CACHES = build.pod(affinity=affinity(anti_required=[IN_CACHENS]))


@pytest.mark.parametrize(
    ("cluster", "pod", "state", "is_ok"),
    [
        pytest.param(nodes("a"), POD, "schedulable", True, id="it fits"),
        pytest.param([], POD, "failed", False, id="there is no node"),
        pytest.param(nodes("a"), GATED, "gated", False, id="gates"),
        pytest.param(nodes("a"), build.pod(phase="Succeeded", node="a"), "finished", True, id="done"),
        pytest.param(nodes("a"), ON_A, "bound", True, id="bound"),
        pytest.param([*CLOSED, *nodes("b")], ON_A, "bound", True, id="bound where it does not fit now"),
        pytest.param(CLOSED, ON_A, "bound", True, id="bound, and fits nowhere now"),
        pytest.param(nodes("a"), GONE, "bound", False, id="bound to no node, and never started"),
        pytest.param(nodes("a"), STARTED, "bound", False, id="bound to a node that is gone"),
        pytest.param(nodes("a"), build.pod(terminating=True), "schedulable", True, id="deleted"),
        pytest.param(
            nodes("a"), build.pod(terminating=True, node="a"), "bound", True, id="bound and deleted"
        ),
        pytest.param(nodes("a"), BAD_SPREAD, "failed", False, id="a constraint that does not parse"),
        pytest.param(nodes("a"), NAMED, "schedulable", True, id="named nodes"),
        pytest.param(zoned("a1 b1"), using("c"), "schedulable", True, id="a volume that is being made"),
        pytest.param(nodes("a"), LATER, "schedulable", True, id="a field of a later version"),
        pytest.param(nodes("a"), MISSPELT, "schedulable", True, id="an annotation that nothing reads"),
        pytest.param(zoned("a"), ANTI_TYPO, "schedulable", True, id="anti-affinity by a label of no node"),
        pytest.param(zoned("a"), SOFT_TYPO, "bound", True, id="preferences and a spread by one"),
        pytest.param(zoned("a1"), IN_CACHES, "schedulable", True, id="a namespace that does not exist"),
    ],
)
def test_a_pod_that_is_not_refused_has_its_state_and_a_sentence(
    cluster: list[Json], pod: Json, state: str, snapshot: SnapshotAssertion, *, is_ok: bool
) -> None:
    running = [pod] if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending" else []
    storage = [storage_class("s"), claim("c", "s", node="a1")]
    namespaces = [build.namespace(name) for name in ("caches", "default")]
    answer = Cluster(cluster, running, namespaces, storage=storage).explain(pod)
    assert (answer.state, answer.is_ok, answer.suggestions) == (state, is_ok, ())
    assert answer.node_gone == (state == "bound" and not is_ok)
    assert (answer.message, *answer.notes) == snapshot


def test_of_namespaces_that_may_not_be_listed_nothing_is_said() -> None:
    assert Cluster(zoned("a1")).explain(IN_CACHES).notes == ()


@pytest.mark.parametrize(
    "key",
    [
        HOSTNAME,
        ZONE,
        "topology.kubernetes.io/region",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "node.kubernetes.io/instance-type",
    ],
)
def test_no_suggestion_changes_what_a_kubelet_or_cloud_says_of_a_node(key: str) -> None:
    """A node without the label may get one."""
    cluster = Cluster([build.node("a", labels={key: "x"}), build.node("b", labels={key: "y"})])
    asked = build.pod(node_selector={key: "nowhere"})
    assert cluster.explain(asked).suggestions == ()
    (suggestion,) = Cluster([build.node("bare", hostname=None)]).explain(asked).suggestions
    assert suggestion.changes == (LabelNode("bare", key, "nowhere"),)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(web("p", affinity=affinity(anti_required=[term(HOSTNAME, WEB)])), id="anti-affinity"),
        pytest.param(requesting("p", None, "9100"), id="a host port"),
        pytest.param(web("p", spread=[spread(HOSTNAME, WEB, min_domains=2)]), id="spread"),
    ],
)
@pytest.mark.parametrize("stays", [True, False])
def test_no_suggestion_removes_a_pod_that_its_daemon_set_puts_back(pod: Json, stays: bool) -> None:
    owner = build.owned_by("DaemonSet", "exporter") if stays else None
    holder = web("x", "a", owner=owner, containers=[build.container(host_ports=["9100"])])
    answer = Cluster(nodes("a"), [holder]).explain(pod)
    assert ("RemovePod" in chain(*changes(answer))) is not stays


def archive(name: str, node: str, cpu: str, phase: str = "Running") -> Json:
    return build.pod(name, node=node, cpu=cpu, labels={"app": "archive"}, phase=phase)


def kept(*pods: Json, allowed: int = 0) -> Explanation:
    """Return the explanation of a pod that needs 2 of 4 cpus of a node; a budget selects the pods of app=archive."""
    cluster = Cluster(nodes("a b", allocatable={"cpu": "4", "pods": "9"}), list(pods))
    state, budget = cluster.state(), build.disruption_budget("archive", selector("app=archive"), allowed)
    state.budgets.upsert(KINDS["PodDisruptionBudget"].decode(encoded(budget)))
    return explain(cluster.request(build.pod("p", cpu="2"), state))


def test_pods_that_a_budget_does_not_let_go_are_proposed_last(snapshot: SnapshotAssertion) -> None:
    """Of one node's pods the others are to leave, although these are smaller; and a whole node's come last."""
    small, equal = build.pod("a1", node="a", cpu="1"), build.pod("b1", node="b", cpu="2")
    answer = kept(archive("a0", "a", "3"), small, archive("b0", "b", "2"), equal)
    leaving = [
        [change.pod for change in each.changes if isinstance(change, RemovePod)]
        for each in answer.suggestions
    ]
    assert (leaving[0], "a0" in leaving[-1]) == (["b1"], True)
    assert told(answer) == snapshot


@pytest.mark.parametrize(("allowed", "phase"), [(1, "Running"), (0, "Pending")])
def test_a_budget_that_lets_a_pod_go_holds_nobody(allowed: int, phase: str) -> None:
    answer = kept(archive("a0", "a", "3", phase), archive("b0", "b", "4", phase), allowed=allowed)
    assert texts(answer)[0] == ("pod default/a0 leaves node a",)
    assert answer.notes == ()


def test_no_proposal_takes_away_a_replica_of_the_simulation() -> None:
    """The first two replicas run only in thought: the pod that runs is to leave, or the node to grow."""
    node = build.node("n", allocatable={"cpu": "3", "pods": "9"})
    cluster = loaded(node, build.pod("zz", node="n", cpu="1"))
    pod = build.pod(labels={"app": "web"}, cpu="1", spec={"schedulerName": NAME})
    document = workload("Deployment", "web", pod, 3)
    manifest = parse_manifest(document, namespace="default", semantics=cluster.settings.semantics)
    (simulation,) = simulate_manifests(cluster, [manifest], None, random.Random(1))
    assert simulation.n_placed == 2
    assert simulation.next is not None
    assert texts(simulation.next) == [("pod default/zz leaves node n",), ("node n has 1 more cpu",)]


def test_what_would_help_more_replicas_is_no_change_that_all_of_them_share() -> None:
    """With matchLabelKeys, all replicas of a Deployment are of one revision again: no more of them fit."""
    shared = {"AddMatchLabelKey", "RecreateWithMatchLabelKey", "RollOutInPlace"}
    cluster, pod = Cluster(zoned("a1 b1"), ONE_PER_ZONE[:2]), of_revision(2, "new", affinity=alone_per_zone())
    assert shared <= set(chain(*changes(cluster.explain(pod))))
    asked = changes(cluster.explain(pod, adds_replicas=True))
    assert asked
    assert shared.isdisjoint(chain(*asked))


def test_a_group_evicts_with_its_own_priority() -> None:
    """Its member has a lower priority than the pod that ends."""
    cluster = Cluster(sized(a="1"), [PREEMPTED])
    state = cluster.state()
    key = GroupKey(GroupKind.KUBERNETES, "default", "g")
    state.groups.upsert(PodGroup(key, 1, api_version="v1alpha2", priority=9))
    member = nominated("a", 0, schedulingGroup={"podGroupName": "g"})
    answer = explain(cluster.request(member, state))
    assert answer.notes == ("nominated to node a, where these pods end: default/low",)


def test_the_room_that_is_kept_for_a_nominated_pod_is_told_to_pods_that_are_no_more_important() -> None:
    cluster = Cluster(sized(a="1"))
    state = cluster.state()
    state.nominate(decoded(nominated("a")), "a")
    answer = explain(cluster.request(prior("low", 1), state))
    assert answer.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert answer.notes == ("room is kept for nominated pods: default/high (priority 9) on node a",)
    assert explain(cluster.request(prior("top", 10), state)).notes == ()


def test_nodes_that_refuse_alike_are_one_row_though_a_pod_is_nominated_to_one() -> None:
    cluster = Cluster(zoned("a1 b1"))
    state = cluster.state()
    state.nominate(decoded(nominated("a1")), "a1")
    answer = explain(cluster.request(build.pod("p", node_selector={"disk": "ssd"}), state))
    assert [(group.n_nodes, group.examples) for group in answer.groups] == [(2, ("a1", "b1"))]
