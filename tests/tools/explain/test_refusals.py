"""Each kind of refusal: the message, the groups of nodes, and the suggestions."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.engine.model.changes import (
    AddMatchLabelKey,
    AddRoom,
    AllowSkew,
    Change,
    HonorPolicy,
    LabelNamespace,
    LabelNode,
    RecreateWithMatchLabelKey,
    RemovePod,
    RemoveTaint,
    RunPod,
    TolerateTaint,
    Uncordon,
)
from scheduler.engine.model.disruption_budgets import decode_disruption_budget
from scheduler.tools.explain.explainer import explain
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.sentences import change_text, rule_text
from tests.support import build
from tests.support.json_cluster import Cluster, alone_per_zone, changes, encoded, groups, web, zoned

GPU = "dedicated=gpu:NoSchedule"
CORDONED = "node.kubernetes.io/unschedulable:NoSchedule"
#: Affinity to pods of all namespaces with a label.
INTO_CORE = build.pod(
    affinity=build.affinity(
        required=[
            build.term(
                build.ZONE, build.selector("app=cache"), namespace_selector=build.selector("team=core")
            )
        ]
    )
)


def leaves(name: str, node: str, namespace: str = "default") -> RemovePod:
    return RemovePod(namespace, name, node, f"uid-{namespace}-{name}")


def sized(**cpus: str) -> list[build.Json]:
    return [build.node(name, allocatable={"cpu": cpu}) for name, cpu in cpus.items()]


def with_ports(name: str, node: str | None, *ports: str) -> build.Json:
    return build.pod(name, node=node, containers=[build.container(host_ports=list(ports))])


def requesting(name: str, node: str | None = None, **amounts: str) -> build.Json:
    return build.pod(name, node=node, containers=[build.container(requests=amounts)])


LARGEST = "needs 5 cpu, the largest node has 4"
CASES = [
    pytest.param(
        Cluster([build.node("a", taints=[GPU]), build.node("b", taints=[GPU])]),
        build.pod(),
        [(2, "TaintToleration", GPU)],
        [
            (TolerateTaint("dedicated", "gpu", "NoSchedule"),),
            (RemoveTaint("a", "dedicated", "gpu", "NoSchedule"),),
            (RemoveTaint("b", "dedicated", "gpu", "NoSchedule"),),
        ],
        id="a taint",
    ),
    pytest.param(
        Cluster([build.node("a", taints=["team=b:NoExecute", GPU, "slow:PreferNoSchedule"])]),
        build.pod(),
        [(1, "TaintToleration", f"{GPU}, team=b:NoExecute")],
        [
            (TolerateTaint("team", "b", "NoExecute"), TolerateTaint("dedicated", "gpu", "NoSchedule")),
            (RemoveTaint("a", "team", "b", "NoExecute"), RemoveTaint("a", "dedicated", "gpu", "NoSchedule")),
        ],
        id="two taints",
    ),
    pytest.param(
        Cluster([build.node("a", unschedulable=True, taints=[CORDONED])]),
        build.pod(),
        [(1, "NodeUnschedulable", "")],
        [(Uncordon("a"),)],
        id="a cordon and the taint that comes with it",
    ),
    pytest.param(
        Cluster([build.node("a", taints=["node.kubernetes.io/not-ready:NoSchedule"])]),
        build.pod(),
        [(1, "TaintToleration", "node.kubernetes.io/not-ready:NoSchedule")],
        [(RemoveTaint("a", "node.kubernetes.io/not-ready", "", "NoSchedule"),)],
        id="a node's own trouble is not to be tolerated",
    ),
    pytest.param(
        Cluster([build.node("a"), build.node("b", labels={"disk": "hdd"})]),
        build.pod(node_selector={"disk": "ssd"}),
        [(2, "NodeAffinity", "needs disk=ssd (no node has it, but hdd)")],
        [(LabelNode("a", "disk", "ssd"),), (LabelNode("b", "disk", "ssd"),)],
        id="a label that nodeSelector asks for",
    ),
    pytest.param(
        Cluster([build.node("a", labels={"gen": "3", "load": "7", "old": "yes"})]),
        build.pod(affinity=build.affinity(node_required=[build.node_term("gen gt 4", "load lt 5", "!old")])),
        [(1, "NodeAffinity", "needs gen>4, load<5, !old")],
        [(LabelNode("a", "gen", "5"), LabelNode("a", "load", "4"), LabelNode("a", "old", None))],
        id="labels that node affinity compares",
    ),
    pytest.param(
        Cluster([build.node("a")]),
        build.pod(affinity=build.affinity(node_required=[build.node_term()])),
        [(1, "NodeAffinity", "")],
        [],
        id="an empty term, which no label satisfies",
    ),
    pytest.param(
        Cluster(
            sized(a="4", b="4"),
            [
                build.pod(name, node=name[0], cpu=cpu)
                for name, cpu in (("a1", "1"), ("a2", "2500m"), ("b1", "2"), ("b2", "1500m"))
            ],
        ),
        build.pod("p", cpu="2500m"),
        [(2, "NodeResourcesFit", "needs 2500m cpu, at most 500m free")],
        [(leaves("a2", "a"),), (leaves("b1", "b"),), *((AddRoom(n, "cpu", 2000),) for n in "ab")],
        id="room, by as few pods as possible",
    ),
    pytest.param(
        Cluster([build.node("a", allocatable={"pods": "1"})], [build.pod("a1", node="a", cpu="1")]),
        build.pod(),
        [(1, "NodeResourcesFit", "")],
        [(leaves("a1", "a"),), (AddRoom("a", "pods", 1),)],
        id="a pod's place",
    ),
    pytest.param(
        Cluster(
            sized(a="2"), [build.pod("agent", node="a", cpu="1", owner=build.owned_by("DaemonSet", "agent"))]
        ),
        build.pod("p", cpu="2"),
        [(1, "NodeResourcesFit", "needs 2 cpu, at most 1 free")],
        [(AddRoom("a", "cpu", 1000),)],
        id="a daemon's pod would come back",
    ),
    pytest.param(
        Cluster(
            [build.node("a"), build.node("b")],
            [with_ports("dns", "a", "53/UDP", "10.0.0.1:53"), with_ports("web", "b", "53/UDP")],
        ),
        with_ports("p", None, "53/UDP", "10.0.0.1:53", "80"),
        [
            (1, "NodePorts", "host port 53/UDP in use"),
            (1, "NodePorts", "host port 53/UDP, 10.0.0.1:53/TCP in use"),
        ],
        [(leaves("dns", "a"),), (leaves("web", "b"),)],
        id="two host ports, of which a node has one in use",
    ),
    pytest.param(
        Cluster(
            [build.node(name, allocatable={"cpu": "6", "memory": "100Gi", "pods": "9"}) for name in "ab"],
            [requesting(f"on-{name}", name, cpu="2", memory="92Gi") for name in "ab"],
        ),
        requesting("p", cpu="5", memory="100Gi"),
        [(2, "NodeResourcesFit", "needs 5 cpu, at most 4 free; needs 100Gi memory, at most 8Gi free")],
        [
            (AddRoom("a", "cpu", 1000), AddRoom("a", "memory", 92 << 30)),
            (AddRoom("b", "cpu", 1000), AddRoom("b", "memory", 92 << 30)),
        ],
        id="two resources",
    ),
    pytest.param(
        Cluster(
            [build.node("a", allocatable={"cpu": "4", "memory": "8Gi"})],
            [build.pod("small", node="a", cpu="0")],
        ),
        requesting("p", **{"cpu": "5", "memory": "8Gi", "a.example.com/x": "1"}),
        [(1, "NodeResourcesFit", "no node has the resource a.example.com/x; " + LARGEST)],
        [],
        id="a resource that no node has, and one that just suffices",
    ),
    pytest.param(
        Cluster(
            [*sized(n1="1", n3="3", n2="2"), build.node("large", allocatable={"cpu": "4"}, taints=[GPU])]
        ),
        build.pod("p", cpu="4"),
        [(3, "NodeResourcesFit", "needs 4 cpu, at most 3 free"), (1, "TaintToleration", GPU)],
        [(AddRoom("n2", "cpu", 2000),), (AddRoom("n3", "cpu", 1000),)],
        id="room, on the nodes that are short of the least",
    ),
    pytest.param(
        Cluster(zoned("a1 a2 b1"), [web("one", "a1", affinity=alone_per_zone()), web("two", "b1")]),
        web("p", affinity=alone_per_zone()),
        [(2, "InterPodAffinity", f"{build.ZONE}=a"), (1, "InterPodAffinity", f"{build.ZONE}=b")],
        [(leaves("one", "a1"),), (leaves("two", "b1"),)],
        id="anti-affinity of the pod",
    ),
    pytest.param(
        Cluster(zoned("a1 a2"), [build.pod("lonely", node="a2", affinity=alone_per_zone())]),
        web("p"),
        [(2, "InterPodAffinity", f"{build.ZONE}=a")],
        [(leaves("lonely", "a2"),)],
        id="anti-affinity of a running pod",
    ),
    pytest.param(
        Cluster(zoned("a1 b1")),
        build.pod(affinity=build.affinity(required=[build.term(build.ZONE, build.selector("app=cache"))])),
        [(1, "InterPodAffinity", f"{build.ZONE}=a"), (1, "InterPodAffinity", f"{build.ZONE}=b")],
        [(RunPod("default", {"app": "cache"}, "a1"),), (RunPod("default", {"app": "cache"}, "b1"),)],
        id="affinity to pods that do not run",
    ),
    pytest.param(
        Cluster(
            zoned("a1"),
            [build.pod("cache", namespace="shared", labels={"app": "cache"}, node="a1")],
            [build.namespace("shared"), build.namespace("default")],
        ),
        INTO_CORE,
        [(1, "InterPodAffinity", f"{build.ZONE}=a")],
        [(LabelNamespace("shared", "team", "core"),)],
        id="affinity into a namespace that lacks the label",
    ),
    pytest.param(
        Cluster(zoned("a1"), [], [build.namespace("shared", labels={"team": "core"})]),
        INTO_CORE,
        [(1, "InterPodAffinity", f"{build.ZONE}=a")],
        [(RunPod("shared", {"app": "cache"}, "a1"),)],
        id="affinity to pods of another namespace that do not run",
    ),
    pytest.param(
        Cluster([*zoned("a1"), build.node("bare")], [web("one", "a1")]),
        web(
            "p",
            affinity=build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))]),
            spread=[build.spread(build.ZONE, build.selector("app=web"))],
        ),
        [(1, "InterPodAffinity", f"{build.ZONE}=a"), (1, "PodTopologySpread", f"no label {build.ZONE}")],
        [(leaves("one", "a1"),)],
        id="a topology label that is missing",
    ),
    pytest.param(
        Cluster([*zoned("a1 b1"), *zoned("c1", taints=[GPU])], [web("one", "a1"), web("two", "b1")]),
        web("p", spread=[build.spread(build.ZONE, build.selector("app=web"))]),
        [
            (1, "PodTopologySpread", f"{build.ZONE}=a"),
            (1, "PodTopologySpread", f"{build.ZONE}=b"),
            (1, "TaintToleration", GPU),
        ],
        [
            (HonorPolicy(build.ZONE, "nodeTaintsPolicy"),),
            (TolerateTaint("dedicated", "gpu", "NoSchedule"),),
            (RemoveTaint("c1", "dedicated", "gpu", "NoSchedule"),),
            (leaves("one", "a1"),),
            (AllowSkew(build.ZONE, 2),),
        ],
        id="a spread whose emptiest zone is closed",
    ),
]


@pytest.mark.parametrize(("cluster", "pod", "refused", "expected"), CASES)
def test_a_refusal_has_its_groups_and_suggestions(
    cluster: Cluster, pod: build.Json, refused: list[tuple[int, str, str]], expected: list[tuple[Change, ...]]
) -> None:
    answer = cluster.explain(pod)
    assert answer.state == "unschedulable"
    assert groups(answer) == refused
    found = [suggestion.changes for suggestion in answer.suggestions]
    assert [remedy for remedy in expected if remedy not in found] == []
    kinds = {tuple(type(change).__name__ for change in remedy) for remedy in expected}
    assert {tuple(kind) for kind in changes(answer)} >= kinds


@pytest.mark.parametrize(
    ("pods", "asked", "plugin", "text", "expected"),
    [
        pytest.param(
            [],
            web("p", spread=[build.spread("row", build.selector("app=web"))]),
            "PodTopologySpread",
            "The pod's spread of app=web in namespace default, by row",
            [(LabelNode("a", "row", "a"),), (LabelNode("b", "row", "b"),)],
            id="spread: any node that has it is the emptiest domain",
        ),
        pytest.param(
            [web("one", "b")],
            build.pod(affinity=build.affinity(required=[build.term("row", build.selector("app=web"))])),
            "InterPodAffinity",
            "The pod's affinity: beside a pod with app=web in namespace default, by row",
            [(LabelNode("b", "row", "b"),)],
            id="affinity: the node of the pod to be near",
        ),
        pytest.param(
            [],
            build.pod(affinity=build.affinity(required=[build.term("row", build.selector("app=web"))])),
            "InterPodAffinity",
            "The pod's affinity: beside a pod with app=web in namespace default, by row",
            [(LabelNode("a", "row", "a"), RunPod("default", {"app": "web"}, "a"))],
            id="affinity: there is no such pod either",
        ),
    ],
)
def test_a_topology_key_that_no_node_has_is_named_and_its_label_proposed(
    pods: list[build.Json], asked: build.Json, plugin: str, text: str, expected: list[tuple[Change, ...]]
) -> None:
    answer = Cluster([build.node("a"), build.node("b")], pods).explain(asked)
    assert groups(answer) == [(2, plugin, "no label row")]
    assert [rule.topology_key for rule in answer.rules] == ["row"]
    assert rule_text(answer.rules[0]).startswith(text)
    found = [suggestion.changes for suggestion in answer.suggestions]
    assert [remedy for remedy in expected if remedy not in found] == []


KEYED = f"with topologyKey {build.ZONE} has matchLabelKeys: [pod-template-hash]"


def revision(name: str, of: str, node: str | None = None, **more: Any) -> build.Json:
    """Return a pod of a Deployment's revision."""
    return build.pod(name, labels={"app": "web", "pod-template-hash": of}, node=node, **more)


@pytest.mark.parametrize(
    ("running", "asked", "expected", "texts"),
    [
        pytest.param(
            [revision("old", "1", "a1", affinity=alone_per_zone())],
            revision("p", "2", affinity=alone_per_zone()),
            (
                AddMatchLabelKey("podAntiAffinity", build.ZONE, "pod-template-hash"),
                RecreateWithMatchLabelKey(build.ZONE, "pod-template-hash", 1),
            ),
            [
                f"the pod's podAntiAffinity {KEYED}",
                f"the running pod with that term by {build.ZONE} is created anew, with matchLabelKeys too "
                "(a Deployment does it with strategy Recreate)",
            ],
            id="both revisions declare the rule",
        ),
        pytest.param(
            [revision("old", "1", "a1")],
            revision("p", "2", affinity=alone_per_zone()),
            (AddMatchLabelKey("podAntiAffinity", build.ZONE, "pod-template-hash"),),
            [f"the pod's podAntiAffinity {KEYED}"],
            id="the old revision has no rule",
        ),
        pytest.param(
            [revision("old", "1", "a1")],
            revision("p", "2", spread=[build.spread(build.ZONE, build.selector("app=web"), min_domains=2)]),
            (AddMatchLabelKey("topologySpreadConstraints", build.ZONE, "pod-template-hash"),),
            [f"the pod's topologySpreadConstraints {KEYED}"],
            id="a spread that counts the old revision",
        ),
    ],
)
def test_a_rollout_that_its_own_rule_blocks_is_proposed_match_label_keys(
    running: list[build.Json], asked: build.Json, expected: tuple[Change, ...], texts: list[str]
) -> None:
    answer = Cluster(zoned("a1"), running).explain(asked)
    assert expected in [suggestion.changes for suggestion in answer.suggestions]
    assert [change_text(change) for change in expected] == texts


@pytest.mark.parametrize(
    ("running", "asked"),
    [
        pytest.param(
            [revision("one", "1", "a1")], revision("p", "1", affinity=alone_per_zone()), id="a replica"
        ),
        pytest.param([web("one", "a1")], web("p", affinity=alone_per_zone()), id="no Deployment"),
        pytest.param(
            [revision("old", "1", "a1", affinity=alone_per_zone())], revision("p", "2"), id="another's rule"
        ),
    ],
)
def test_match_label_keys_are_not_proposed_where_they_do_not_help(
    running: list[build.Json], asked: build.Json
) -> None:
    answer = Cluster(zoned("a1"), running).explain(asked)
    assert not [change for change in changes(answer) if "AddMatchLabelKey" in change]


def test_a_nodes_name_that_is_too_long_for_a_label_is_cut() -> None:
    name = f"{'n' * 62}.example.com"
    spread = [build.spread("row", build.selector("app=web"))]
    (suggestion,) = Cluster([build.node(name)]).explain(web("p", spread=spread)).suggestions
    assert suggestion.changes == (LabelNode(name, "row", "n" * 62),)


def test_many_nodes_are_a_few_groups() -> None:
    """Hostname domains are one group, and only three nodes of a group are named."""
    nodes = [build.node(f"n{i}") for i in range(300)]
    pods = [web(f"w{i}", f"n{i}") for i in range(300)]
    per_host = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=web"))])
    answer = Cluster(nodes, pods).explain(web("p", affinity=per_host))
    assert groups(answer) == [(300, "InterPodAffinity", build.HOSTNAME)]
    assert answer.groups[0].examples == ("n0", "n1", "n10")
    (rule,) = answer.rules
    assert (rule.pods.n_total, len(rule.pods.shown)) == (300, 20)
    assert (len(rule.domains), rule.n_more_domains) == (100, 200)


@pytest.mark.parametrize(
    ("pod", "state", "words"),
    [
        pytest.param(build.pod(), "schedulable", "fits on 1 of 1 node; a would be chosen now", id="it fits"),
        pytest.param(
            build.pod(spec={"schedulingGates": [{"name": "g"}]}), "gated", "scheduling gates: g", id="gates"
        ),
        pytest.param(
            build.pod(phase="Succeeded", node="a"), "finished", "the pod has finished (Succeeded)", id="done"
        ),
        pytest.param(build.pod(node="a"), "bound", "runs on a, the only node where it fits now", id="bound"),
        pytest.param(
            build.pod(spread=[build.spread(build.ZONE, {"matchLabels": {"a": "-"}})]),
            "failed",
            "get constraints from pod",
            id="a constraint that does not parse",
        ),
        pytest.param(
            build.pod(affinity=build.affinity(node_required=[build.node_term(named=["in a"])])),
            "schedulable",
            "a would be chosen now",
            id="named nodes",
        ),
    ],
)
def test_a_pod_that_is_not_refused_has_its_state_and_a_sentence(
    pod: build.Json, state: str, words: str
) -> None:
    is_bound = bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] == "Pending"
    cluster = Cluster([build.node("a")], [pod] if is_bound else [])
    answer = cluster.explain(pod)
    assert (answer.state, answer.suggestions) == (state, ())
    assert words in answer.message


def test_a_prefilter_refusal_is_one_group() -> None:
    broken = build.affinity(required=[build.term(build.ZONE, {"matchLabels": {"a": "-"}})])
    answer = Cluster([build.node("a"), build.node("b")]).explain(build.pod(affinity=broken))
    (group,) = answer.groups
    assert (group.n_nodes, group.plugin, group.removable) == (2, "InterPodAffinity", False)
    assert group.reason.startswith("parsing pod: requiredAffinityTerms")
    assert answer.suggestions == ()


@pytest.mark.parametrize(
    "key",
    [
        build.HOSTNAME,
        build.ZONE,
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
        pytest.param(
            build.pod(
                affinity=build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=web"))])
            ),
            id="anti-affinity",
        ),
        pytest.param(build.pod(containers=[build.container(host_ports=["9100"])]), id="a host port"),
        pytest.param(
            build.pod(spread=[build.spread(build.HOSTNAME, build.selector("app=web"), min_domains=2)]),
            id="spread",
        ),
    ],
)
@pytest.mark.parametrize("stays", [True, False])
def test_no_suggestion_removes_a_pod_that_its_daemon_set_puts_back(pod: build.Json, stays: bool) -> None:
    owner = build.owned_by("DaemonSet", "exporter") if stays else None
    holder = web("x", "a", owner=owner, containers=[build.container(host_ports=["9100"])])
    pod["metadata"]["labels"] = {"app": "web"}
    answer = Cluster([build.node("a")], [holder]).explain(pod)
    removed = [change for changes_ in answer.suggestions for change in changes_.changes]
    assert any(isinstance(change, RemovePod) for change in removed) is not stays


def test_a_pod_that_is_being_deleted_says_so() -> None:
    cluster = Cluster([build.node("a")])
    assert cluster.explain(build.pod(terminating=True)).notes == (
        "the pod is being deleted; no scheduler will place it",
    )
    bound = build.pod(terminating=True, node="a")
    assert Cluster([build.node("a")], [bound]).explain(bound).notes == ("the pod is being deleted",)


def test_a_cluster_without_nodes_has_the_schedulers_message() -> None:
    answer = Cluster([]).explain(build.pod())
    assert (answer.state, answer.message, answer.n_nodes) == (
        "failed",
        "no nodes available to schedule pods",
        0,
    )


def _held(*pods: build.Json, allowed: int = 0) -> Explanation:
    """Return the explanation of a pod that needs 2 cpus of nodes with 4; a budget selects the pods of app=archive."""
    nodes = [build.node(name, allocatable={"cpu": "4", "pods": "9"}) for name in ("a", "b")]
    cluster = Cluster(nodes, list(pods))
    state, budget = (
        cluster.state(),
        build.disruption_budget("archive", build.selector("app=archive"), allowed),
    )
    state.budgets.upsert(decode_disruption_budget(encoded(budget)))
    return explain(cluster.request(build.pod("p", cpu="2"), state))


def _archive(name: str, node: str, cpu: str, phase: str = "Running") -> build.Json:
    return build.pod(name, node=node, cpu=cpu, labels={"app": "archive"}, phase=phase)


def test_pods_that_a_budget_does_not_let_go_are_proposed_last() -> None:
    """Of one node's pods the others are to leave, although these are smaller; and a whole node's come last."""
    pods = (
        _archive("a0", "a", "3"),
        build.pod("a1", node="a", cpu="1"),
        _archive("b0", "b", "2"),
        build.pod("b1", node="b", cpu="2"),
    )
    answer = _held(*pods)
    (first, *_, last) = answer.suggestions
    assert first.changes == (leaves("b1", "b"),)
    assert leaves("a0", "a") in last.changes
    assert "PodDisruptionBudget default/archive refuses the eviction of default/a0 now" in answer.notes


@pytest.mark.parametrize(("allowed", "phase"), [(1, "Running"), (0, "Pending")])
def test_a_budget_that_lets_a_pod_go_holds_nobody(allowed: int, phase: str) -> None:
    answer = _held(_archive("a0", "a", "3", phase), _archive("b0", "b", "4", phase), allowed=allowed)
    assert answer.suggestions[0].changes == (leaves("a0", "a"),)
    assert not any("PodDisruptionBudget" in note for note in answer.notes)
