"""Which domains a limiting term has filled equals a recount, whatever moves: pods, nodes, their labels, namespaces."""

from __future__ import annotations

import json
import random

import pytest

from scheduler.model.nodes import decode_namespace, decode_node
from scheduler.model.pods import PodDecoder
from scheduler.model.terms import usable
from scheduler.state.audit import differences
from scheduler.state.cluster import ClusterState
from scheduler.state.recounting import Recount
from scheduler.state.selection import LabelSet
from scheduler.state.snapshot import Snapshot
from scheduler.state.sums import KeptSums
from tests.support import build

ANNOTATION = "affinity-scheduler.io/affinity"
NODES = ("a", "b", "c")
SPACES = ("one", "two")
UIDS = [f"p{number}" for number in range(12)]


def _pod(uid: str, space: str, app: str, far: list[build.Json], node: str) -> build.Json:
    made = build.pod(uid, namespace=space, uid=uid, labels={"app": app}, node=node)
    if far:
        asked = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": far}}
        made["metadata"]["annotations"] = {ANNOTATION: json.dumps(asked)}
    return made


def _drawn_term(chance: random.Random) -> build.Json:
    key = chance.choice((build.ZONE, build.ZONE, build.HOSTNAME))
    spaces = chance.choice((None, {}, build.selector("team=t"), build.selector("!team")))
    wanted = build.selector(chance.choice(("app=x", "app=y", "!absent")))
    return {**build.term(key, wanted, namespace_selector=spaces), "maxPodsPerDomain": chance.randint(2, 4)}


def _drawn_pod(chance: random.Random) -> build.Json:
    far = [_drawn_term(chance) for _ in range(chance.randint(0, 2))]
    node = chance.choice((*NODES, *NODES, "unknown"))
    return _pod(chance.choice(UIDS), chance.choice(SPACES), chance.choice(("x", "y")), far, node)


def _drawn_change(chance: random.Random) -> tuple[str, object]:
    what = chance.choices(
        ("pod", "gone", "node", "no node", "space", "no space", "sweep"), (12, 3, 4, 1, 3, 1, 1)
    )[0]
    more: dict[str, object] = {
        "pod": _drawn_pod(chance),
        "gone": chance.choice(UIDS),
        "node": (chance.choice((*NODES, "unknown")), chance.choice(("z1", "z1", "z2", None))),
        "no node": chance.choice(NODES),
        "space": (chance.choice(SPACES), chance.choice(("t", "u", None))),
        "no space": chance.choice(SPACES),
        "sweep": None,
    }
    return what, more[what]


class Life:
    """A cluster's state and what it is told."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self._decoder = PodDecoder()
        self.kept: KeptSums[LabelSet] = KeptSums()

    def apply(self, what: str, more: object) -> None:
        state = self.state
        match what, more:
            case "pod", dict():
                state.upsert_pod(self._decoder.decode(json.dumps(more).encode()))
            case "gone", str():
                state.remove_pod(more)
            case "node", (str() as name, zone):
                labels = {} if zone is None else {build.ZONE: str(zone)}
                state.upsert_node(decode_node(json.dumps(build.node(name, labels=labels)).encode()))
            case "no node", str():
                state.remove_node(more)
            case "space", (str() as name, team):
                labels = {} if team is None else {"team": str(team)}
                document = build.namespace(name, labels=labels)
                state.upsert_namespace(decode_namespace(json.dumps(document).encode()))
            case "no space", str():
                state.remove_namespace(more)
            case _:
                state.sweep()

    def closed(self, space: str, app: str) -> set[str]:
        """Nodes that are full for a newcomer, by what is kept."""
        snapshot = Snapshot(self.state)
        label_set = self.state.selections.label_set(space, {"app": app})
        limits = [(limit, 1) for limit in label_set.limits]
        sums = self.kept.of(label_set, snapshot.column, limits, snapshot.n_rows).amounts
        return (
            set() if sums is None else {self.state.nodes.name_of(row) for row in sums.nonzero()[0].tolist()}
        )

    def recounted(self, space: str, app: str) -> set[str]:
        """The same from the pods, one by one."""
        found: set[str] = set()
        nodes = {node.name: node for node in self.state.nodes.nodes if node is not None}
        placed = [
            (one.pod, nodes.get(self.state.nodes.name_of(one.row))) for one in self.state.placed.values()
        ]
        spaces = self.state.selections.namespace_labels
        for declaring, at in placed:
            for term in usable(declaring.spec.affinity.required_anti):
                key = term.topology_key
                domain = None if at is None else at.labels.get(key)
                selects = [
                    term.selector.matches(labels)
                    and (name in term.namespaces or term.namespace_selector.matches(spaces.get(name) or {}))
                    for name, labels in [
                        (space, {"app": app}),
                        *((pod.namespace, pod.labels) for pod, _ in placed),
                    ]
                ]
                others = sum(
                    selected and pod is not declaring and node is not None and node.labels.get(key) == domain
                    for selected, (pod, node) in zip(selects[1:], placed, strict=True)
                )
                if domain is not None and selects[0] and others + 1 > term.max_pods - 1:
                    found.update(node.name for node in nodes.values() if node.labels.get(key) == domain)
        return found


@pytest.mark.parametrize("seed", range(12))
def test_full_domains_equal_a_recount_after_every_change(seed: int) -> None:
    life, chance = Life(), random.Random(seed)
    n_closed = 0
    for node in NODES:
        life.apply("node", (node, "z1"))
    for _ in range(250):
        life.apply(*_drawn_change(chance))
        assert differences(life.state) == []
        for space in SPACES:
            for app in ("x", "y"):
                closed = life.closed(space, app)
                assert closed == life.recounted(space, app)
                n_closed += bool(closed)
    background = Recount(life.state)
    assert [line for _ in range(60) for line in background.step()] == []
    assert n_closed > 50


def _two_per_zone(uid: str, node: str) -> build.Json:
    limit = {**build.term(build.ZONE, build.selector("app=x")), "maxPodsPerDomain": 2}
    return _pod(uid, "one", "x", [limit], node)


def test_a_full_domain_stays_full_when_the_node_leaves_that_made_it_so() -> None:
    """The node has no pod any more that declares the limit; the zone has."""
    life = Life()
    for node in NODES:
        life.apply("node", (node, "z1"))
    for uid, node in (("p0", "a"), ("p1", "b"), ("p2", "c"), ("p3", "c")):
        life.apply("pod", _two_per_zone(uid, node))
    for uid, node in (("p0", "a"), ("p1", "b")):
        life.apply("gone", uid)
        life.apply("node", (node, "z2"))
        assert differences(life.state) == []
    assert life.closed("one", "x") == {"c"}
    life.apply("no node", "c")
    assert life.closed("one", "x") == set()
    life.apply("node", ("c", "z2"))
    assert life.closed("one", "x") == {"a", "b", "c"}


def test_the_audit_sees_a_limit_that_was_miscounted() -> None:
    life = Life()
    life.apply("node", ("a", "z1"))
    life.apply("pod", _two_per_zone("p0", "a"))
    life.apply("pod", _two_per_zone("p1", "a"))
    (term,) = life.state.declared.all().values()
    assert term.limit is not None
    term.limit.selected["z1"] -= 1
    expected = "selected pods by topology.kubernetes.io/zone: {'z1': 1} kept, {'z1': 2} recounted"
    assert [line.partition(": ")[2] for line in differences(life.state)] == [expected]
    background = Recount(life.state)
    assert any(expected in line for _ in range(4) for line in background.step())
