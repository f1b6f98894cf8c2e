"""Ready tests of the plugin contract, on clusters that are drawn by seed."""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from scheduler.engine.model.stimuli import CycleDue, PodGone, PodSeen
from scheduler.sdk.testing.cluster import Cluster, completed
from scheduler.sdk.testing.decisions import Decision
from scheduler.sdk.testing.objects import JsonObject, make_node, make_pod

_ZONE = "topology.kubernetes.io/zone"


class PluginTests:
    """
    The tests that every plugin is put through. Derive a class named `Test...`, and set `plugin` and `pods`.

    The clusters have nodes with `node_labels` and `node_annotations`, and running pods like `pods`.
    """

    #: The plugin's class.
    plugin: ClassVar[Any]
    #: Its arguments; None for the defaults.
    args: ClassVar[Any] = None
    #: Pods that the plugin is asked about, with the labels and fields that it reads.
    pods: ClassVar[Sequence[JsonObject]] = (make_pod(),)
    #: Labels of nodes that the plugin reads, with values to draw from.
    node_labels: ClassVar[Mapping[str, Sequence[str]]] = {_ZONE: ("a", "b", "c")}
    #: Annotations of nodes that the plugin reads, with values to draw from.
    node_annotations: ClassVar[Mapping[str, Sequence[str]]] = {}
    #: The same rule in the other form, over all nodes at once or node by node; None if there is none.
    other_form: ClassVar[Any] = None
    #: The longest decision at 5,000 nodes once warm, in seconds of CPU; the built-in plugins take 0.0001 together.
    longest_decision_s: ClassVar[float] = 0.005

    # The clusters.

    def cluster(self, n_nodes: int = 30, *, n_pods: int | None = None, seed: int = 1) -> Cluster:
        """Return a cluster that only the plugin decides about; `n_pods`: running pods, as many as nodes by default."""
        return self._filled(self._empty(self.plugin), n_nodes, n_nodes if n_pods is None else n_pods, seed)

    def node(self, name: str, draw: random.Random) -> JsonObject:
        """Return a node whose labels, annotations and age are drawn; now and then a label or annotation is missing."""
        labels, annotations = (
            {key: draw.choice(values) for key, values in drawn.items() if draw.random() < 0.9}
            for drawn in (self.node_labels, self.node_annotations)
        )
        created = f"2026-01-{draw.randrange(1, 29):02}T00:00:00Z"
        return make_node(name, labels=labels, annotations=annotations, created=created)

    def running_pod(self, name: str, node: str, draw: random.Random) -> JsonObject:
        """Return one of `pods`, on the node."""
        pod = draw.choice(list(self.pods))
        return {
            **pod,
            "metadata": {**pod["metadata"], "name": name},
            "spec": {**pod["spec"], "nodeName": node},
        }

    # The tests.

    def test_every_pod_is_decided(self) -> None:
        """The plugin does not raise: on many nodes, on one, and where no pod runs."""
        for cluster in (self.cluster(), self.cluster(1), self.cluster(n_pods=0)):
            for pod in self.pods:
                decision = cluster.decide(pod)
                assert not decision.error, decision.message

    def test_refused_nodes_have_reasons(self) -> None:
        """The plugin says itself why it refuses a node."""
        for pod in self.pods:
            for node, reason in self._decided(pod).refused.items():
                assert reason, f"{node} is refused without a reason"
                assert "were refused by plugin" not in reason, f"{node}: give the rule a reason of its own"

    def test_scores_are_from_0_to_100(self) -> None:
        """The scores of all feasible nodes are."""
        for pod in self.pods:
            for node, by_plugin in self._decided(pod).scores.items():
                assert 0 <= by_plugin.get(self.plugin.name, 0) <= 100, (node, by_plugin)

    def test_the_same_question_has_the_same_answer(self) -> None:
        """The answer is the same when asked again, and of another cluster with the same nodes and pods."""
        cluster, equal = self.cluster(), self.cluster()
        for pod in self.pods:
            answer = cluster.decide(pod)
            assert answer == cluster.decide(pod) == equal.decide(pod)

    def test_answers_follow_changes(self) -> None:
        """After changes the plugin answers as on a new cluster with the same objects: it keeps nothing stale."""
        draw, cluster = random.Random(2), self.cluster()
        for _ in range(40):
            for pod in self.pods:
                cluster.decide(pod)
            self._change(cluster.objects, draw).apply_to(cluster)
        fresh = self._empty(self.plugin).add(*cluster.objects)
        for pod in self.pods:
            kept, anew = cluster.decide(pod), fresh.decide(pod)
            assert kept.refused == anew.refused
            assert kept.scores == anew.scores

    def test_a_decision_changes_nothing(self) -> None:
        """All counts of the cluster are what a recount gives."""
        cluster = self.cluster()
        for pod in self.pods:
            cluster.decide(pod)
        assert cluster.differences == []

    def test_both_forms_agree(self) -> None:
        """A rule that exists over all nodes at once and node by node refuses and scores alike in both forms."""
        if self.other_form is None:
            # Imported here, so that a notebook needs no pytest.
            importlib.import_module("pytest").skip("other_form is not set: the rule has one form")
        cluster, other = self.cluster(), self._filled(self._empty(self.other_form), 30, 30, 1)
        for pod in self.pods:
            one, two = cluster.decide(pod), other.decide(pod)
            assert one.refused == two.refused
            assert one.totals == two.totals

    def test_events_wake_the_pods_that_were_refused(self) -> None:
        """Any change after which a refused pod fits is one of the plugin's events, and no hint sleeps through it."""
        for seed in range(6):
            draw, cluster = random.Random(seed), self.cluster(3, seed=seed)
            for _ in range(60):
                pod = draw.choice(list(self.pods))
                # Filled until the pod is refused, then emptied until it fits: the events in between have to wake it.
                # For rules that need other pods, and not room, any change every third time.
                fills = None if seed % 3 == 2 else _fits(cluster, pod)
                change = self._change(cluster.objects, draw, fills=fills)
                assert not _oversleeps(cluster, pod, change), (
                    f"{change}: a refused pod fits now, and was not woken"
                )

    def test_a_decision_at_5000_nodes_is_fast(self, record_property: Any) -> None:  # noqa: ANN401 - pytest's
        """The median CPU time of decisions after the first one, with a new pod on a node before each."""
        cluster, draw = self.cluster(5000), random.Random(1)
        took_s: dict[int, list[float]] = {number: [] for number in range(20)}
        for number, took in took_s.items():
            cluster.add(self.running_pod(f"new-{number}", f"node-{number}", draw))
            for pod in self.pods:
                took.append(cluster.time_decision(pod))
        warm = sorted(took for number in range(1, 20) for took in took_s[number])
        record_property("first_decision_ms", round(max(took_s[0]) * 1e3, 3))
        record_property("warm_decision_us", round(warm[len(warm) // 2] * 1e6, 1))
        assert warm[len(warm) // 2] <= self.longest_decision_s

    # Parts of the above.

    def _decided(self, pod: JsonObject) -> Decision:
        """Return the decision about the pod. One with an error, such as a score above 100, names no node at all."""
        decision = self.cluster().decide(pod)
        assert not decision.error, decision.message
        return decision

    def _empty(self, plugin: Any) -> Cluster:  # noqa: ANN401 - a class
        args = {} if self.args is None else {plugin.name: self.args}
        return Cluster(plugins=[plugin], args=args, alone=True)

    def _filled(self, cluster: Cluster, n_nodes: int, n_pods: int, seed: int) -> Cluster:
        draw = random.Random(seed)
        cluster.add(*(self.node(f"node-{number}", draw) for number in range(n_nodes)))
        names = (f"node-{draw.randrange(n_nodes)}" for _ in range(n_pods))
        return cluster.add(*(self.running_pod(f"pod-{i}", name, draw) for i, name in enumerate(names)))

    def _change(
        self, objects: list[JsonObject], draw: random.Random, *, fills: bool | None = None
    ) -> _Change:
        """
        Return a change: a pod comes or goes, a node comes, goes or gets other labels and annotations.

        `fills`: whether it is likely to leave less room, or more; None for either.
        """
        nodes = [one for one in objects if one["kind"] == "Node"]
        pods = [one for one in objects if one["kind"] == "Pod"]
        name = f"new-{draw.randrange(10**9)}"
        filling = ("pod comes", "pod comes", "pod comes", "node goes", "node changes")
        emptying = ("pod goes", "pod goes", "pod goes", "node comes", "node changes")
        kind = draw.choice(filling + emptying if fills is None else filling if fills else emptying)
        if kind == "pod goes" and pods:
            return _Change(draw.choice(pods), goes=True)
        if kind == "node goes" and len(nodes) > 1:
            return _Change(draw.choice(nodes), goes=True)
        if kind == "node changes" and nodes:
            return _Change(self.node(draw.choice(nodes)["metadata"]["name"], draw))
        if kind == "pod comes" and nodes:
            pod = self.running_pod(name, draw.choice(nodes)["metadata"]["name"], draw)
            return _Change(completed(pod))
        return _Change(self.node(name, draw))


class _Change(NamedTuple):
    """A change of a cluster: an object is added or updated, or removed if `goes`."""

    document: JsonObject
    goes: bool = False

    def __str__(self) -> str:
        metadata = self.document["metadata"]
        return f"{self.document['kind']} {metadata['name']} {'went' if self.goes else 'came or changed'}"

    def apply_to(self, cluster: Cluster) -> None:
        """Make the change in the cluster."""
        metadata = self.document["metadata"]
        if not self.goes:
            cluster.add(self.document)
        elif self.document["kind"] == "Node":
            cluster.remove_node(metadata["name"])
        else:
            cluster.remove_pod(metadata["name"], metadata["namespace"])


def _oversleeps(cluster: Cluster, pod: JsonObject, change: _Change) -> bool:
    """Make the change. Return whether the pod was refused before it, fits after it, and still waits."""
    world = cluster._world
    document = completed({**pod, "metadata": {**pod["metadata"], "name": "waits", "uid": "waits"}})
    seen = cluster.stimulus(document)
    assert isinstance(seen, PodSeen)
    world.handle(PodSeen(replace(seen.pod, node_name="")))
    if not _fits(cluster, pod):
        world.handle(CycleDue())
    change.apply_to(cluster)
    still_waits = _fits(cluster, pod) and world.queue.depths()["unschedulable"] > 0
    world.handle(PodGone("waits"))
    return still_waits


def _fits(cluster: Cluster, pod: JsonObject) -> bool:
    return cluster.decide(pod).node is not None
