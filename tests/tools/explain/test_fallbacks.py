"""What explain and simulate say of rules that may count as preferred, and of ones that do."""

from __future__ import annotations

import copy
import json
import random

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.engine.framework.interface import FilterPlugin, PodContext, PreFiltered
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.fallback import FALLBACK, RELAXED
from scheduler.engine.model.pods import DEFAULT_SCHEDULER_NAME
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import PluginFailed
from scheduler.tools.explain.explainer import explain
from scheduler.tools.explain.notes import fallback_notes
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.simulation.replicas import place_replicas
from tests.support import build
from tests.support.build import ZONE, Json
from tests.support.json_cluster import SETTINGS, Cluster, decoded, zoned
from tests.tools.explain.told import told

RULE = "podAntiAffinity by topology.kubernetes.io/zone"
ENTRY = {"rule": "podAntiAffinity", "topologyKey": ZONE, "afterSeconds": 300, "weight": 50}
APART = build.affinity(anti_required=[build.term(ZONE, build.selector("app=web"))])


def web(name: str, node: str | None = None, *, cpu: str = "1", mark: str = "") -> Json:
    annotations = {FALLBACK: json.dumps([ENTRY])}
    if mark:
        annotations[RELAXED] = json.dumps([{"rule": RULE, "why": mark}])
    return build.pod(name, labels={"app": "web"}, node=node, affinity=APART, annotations=annotations, cpu=cpu)


WAITED = web("third")
WAITED["status"]["conditions"] = [build.unscheduled(lastTransitionTime="1970-01-01T00:16:39Z")]
PLACED = web("third", "a1", mark="after 300 s it kept the pod pending alone")
PLAIN = build.pod("plain", labels={"app": "web"})


@pytest.mark.parametrize(
    ("pod", "epoch_s", "state"),
    [
        pytest.param(WAITED, 1120.0, "unschedulable", id="it has waited for a while"),
        pytest.param(WAITED, 1300.0, "schedulable", id="relaxed in its next cycle"),
        pytest.param(PLAIN, 0.0, "unschedulable", id="a rule that would yield to a relaxed pod blocks it"),
        pytest.param(web("big", cpu="64"), 0.0, "unschedulable", id="no fallback would help"),
        pytest.param(PLACED, 0.0, "bound", id="bound with a rule relaxed"),
    ],
)
def test_a_pod_is_told_which_rule_is_relaxed_or_may_be_and_when(
    pod: Json, epoch_s: float, state: str, snapshot: SnapshotAssertion
) -> None:
    running = [web("first", "a1"), *([] if state == "bound" else [web("second", "b1")])]
    cluster = Cluster(zoned("a1 b1"), [*running, *([pod] if state == "bound" else [])], epoch_s=epoch_s)
    answer = cluster.explain(pod, try_changes=False)
    assert answer.state == state
    assert told(answer) == snapshot


def test_no_time_counts_for_a_pod_that_a_node_is_nominated_for() -> None:
    """As in the pod's cycle, which relaxes nothing for it."""
    pod = copy.deepcopy(WAITED)
    pod["status"]["nominatedNodeName"] = "a1"
    pod["spec"]["preemptionPolicy"] = "Never"
    cluster = Cluster(zoned("a1 b1"), [web("first", "a1"), web("second", "b1")], epoch_s=1300.0)
    state = cluster.state()
    state.nominate(decoded(pod), "a1")
    answer = explain(cluster.request(pod, state, try_changes=False))
    assert answer.state == "unschedulable"
    assert answer.notes == (
        "nominated to node a1, where it does not fit",
        f"fallback: the pod fits once {RULE} counts as preferred with weight 50, after 300 s (300 s so far)",
        "fallback: none is due while a node is nominated for the pod",
    )


def test_a_plugin_that_fails_on_a_relaxed_pod_keeps_it_pending() -> None:
    """As in the pod's cycle, where such a pod fits nowhere."""

    class Failing(FilterPlugin):
        name = "Failing"

        def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
            raise PluginFailed(self.name, "PreFilter", f"{context.pod.key} among {view.n_nodes} nodes")

    view = ClusterView(Cluster(zoned("a1")).state())
    profile = Profile("s", (Failing(),), ())
    notes = list(fallback_notes(decoded(web("third")), view, profile, is_nominated=False))
    assert notes == [
        "fallback: the pod would not fit without the rules that have one either, so no time counts"
    ]


def test_a_simulation_counts_replicas_that_fit_only_with_a_relaxed_rule() -> None:
    """As if the time had come; what no fallback helps ends it."""
    cluster = Cluster(zoned("a1 b1"), [web("first", "a1")])
    world = LoadedCluster(SETTINGS, cluster.state()).world(random.Random(1), [DEFAULT_SCHEDULER_NAME])
    pods = [decoded(web(f"new-{n}")) for n in range(3)]
    placed = place_replicas(pods, world)
    assert placed.pods[0][1] == "b1"
    assert len(placed.pods) == 3
    assert placed.notes == (
        f"2 replicas fit only once {RULE} counts as preferred with weight 50, after 300 s",
    )
