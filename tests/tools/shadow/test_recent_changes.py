"""What another scheduler may not have known yet is taken back and made again."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.stimuli import (
    NodeGone,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodGone,
    PodSeen,
    WatchEvent,
)
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.state.audit import differences
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.shadow.recent_changes import MAX_RECENT, RecentChanges
from tests.support import build, storage_objects
from tests.support.json_cluster import decoded, encoded
from tests.tools.explain.random_clusters import random_node, random_pod

WINDOW_S = 2.0


def drawn_events(chance: random.Random, n_events: int) -> Iterator[WatchEvent]:
    """Draw events of every kind, about few objects."""
    for _ in range(n_events):
        number = chance.randrange(3)
        drawn = chance.randrange(9)
        if drawn == 0:
            yield NodeSeen(decode_node(encoded(random_node(chance, number))))
        elif drawn == 1:
            yield NodeGone(f"n{number}")
        elif drawn == 2:
            labels = {"team": chance.choice("ab")}
            yield ObjectSeen(KINDS["Namespace"].decode(encoded(build.namespace("shared", labels=labels))))
        elif drawn == 3:
            yield ObjectGone("Namespace", "shared") if chance.random() < 0.5 else PodGone(f"uid-{number}")
        elif drawn == 4:
            claimed = chance.choice([None, "default/c"])
            volume = storage_objects.volume(f"v{number}", claimed_by=claimed)
            yield ObjectSeen(KINDS[StorageKind.VOLUME].decode(encoded(volume)))
        elif drawn == 5:
            yield ObjectGone(StorageKind.VOLUME, f"v{number}")
        elif drawn == 6:
            service = build.service("s", {"app": chance.choice(("web", "db"))})
            yield ObjectSeen(KINDS["Service"].decode(encoded(service)))
        else:
            pod = random_pod(chance, f"p{number}", "default", "other")
            pod["metadata"]["uid"] = f"uid-{number}"
            if chance.random() < 0.7:
                pod["spec"]["nodeName"] = f"n{chance.randrange(3)}"
            elif chance.random() < 0.5:
                pod["status"]["nominatedNodeName"] = f"n{chance.randrange(3)}"
            pod["status"]["phase"] = chance.choice(("Pending", "Running", "Running", "Failed"))
            yield PodSeen(decoded(pod))


def told(state: ClusterState) -> tuple[object, ...]:
    """Return what counts for decisions."""
    placed = {
        uid: (one.pod.node_name, one.pod.labels, one.pod.spec, one.pod.terminating)
        for uid, one in state.placed.items()
    }
    nominated = {name: sorted(pod.uid for pod in pods) for name, pods in state.nominated.by_node()}
    nodes = {node.name: (node.labels, node.taints) for node in state.nodes.nodes if node is not None}
    volumes = {(one.kind, one.key): one for one in state.volumes.objects()}
    service = state.workloads.seen("Service", "default/s")
    return placed, nominated, nodes, dict(state.label_sets.namespace_labels), volumes, service


@pytest.mark.parametrize("seed", range(30))
def test_each_set_of_changes_is_taken_back_and_made_again(seed: int) -> None:
    """Without the last changes the state is as it was before them; in the end it is as it was."""
    chance = random.Random(seed)
    state = ClusterState()
    recent = RecentChanges(state, window_s=WINDOW_S)
    before = [told(state)]
    changing = (event for event in drawn_events(chance, 40) if recent.apply(event, 10.0) is not None)
    before += [told(state) for _ in changing]
    assert len(before) <= MAX_RECENT
    seen: list[tuple[object, ...]] = []

    def agrees() -> bool:
        assert differences(state) == []
        seen.append(told(state))
        return False

    assert list(recent.explains(agrees, 11.0)) == []
    n_changes = len(before) - 1
    assert seen[:n_changes] == list(reversed(before[:-1]))
    assert told(state) == before[-1]
    assert differences(state) == []


def test_only_recent_changes_of_other_pods_are_taken_back() -> None:
    state = ClusterState()
    recent = RecentChanges(state, window_s=WINDOW_S)
    recent.apply(NodeSeen(decode_node(encoded(build.node("n")))), 0.0)
    for name, at_s in (("early", 1.0), ("late", 5.0), ("own", 5.0)):
        recent.apply(PodSeen(decoded(build.pod(name, node="n"))), at_s)
    found = recent.explains(lambda: len(state.placed) == 2, 6.0, but=("uid-default-own",))
    assert [[change.what for change in left_out] for left_out in found] == [["default/late"]]
    assert list(recent.explains(lambda: "uid-default-early" not in state.placed, 6.0)) == []
    assert len(state.placed) == 3


def test_what_changes_no_decision_is_no_change() -> None:
    """Such as the status of a running pod, a heartbeat of a node, a disruption budget or a known service."""
    state = ClusterState()
    recent = RecentChanges(state, window_s=WINDOW_S)
    decode_pod = PodDecoder().decode
    node, pod = build.node("n"), build.pod("p", node="n")
    assert recent.apply(NodeSeen(decode_node(encoded(node))), 0.0) is not None
    assert recent.apply(PodSeen(decode_pod(encoded(pod))), 0.0) is not None
    node["metadata"]["resourceVersion"] = "2"
    pod["status"]["phase"] = "Running"
    service = ObjectSeen(KINDS["Service"].decode(encoded(build.service("s", {"a": "b"}))))
    assert recent.apply(service, 0.0) is not None
    for event in (
        NodeSeen(decode_node(encoded(node))),
        PodSeen(decode_pod(encoded(pod))),
        service,
        ObjectGone("Service", "default/unknown"),
        ObjectGone("PodDisruptionBudget", "default/b"),
        PodGone("unknown"),
        NodeGone("unknown"),
    ):
        assert recent.apply(event, 0.0) is None
