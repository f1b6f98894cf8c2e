"""What explain and simulate say of rules that may count as preferred, and of ones that do."""

from __future__ import annotations

import json
import random

from scheduler.engine.framework.interface import FilterPlugin, PodContext, PreFiltered
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.fallback import FALLBACK, RELAXED
from scheduler.engine.model.pods import DEFAULT_SCHEDULER_NAME
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import PluginFailed
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.notes import fallback_notes
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.simulation.replicas import place_replicas
from tests.support import build
from tests.support.build import ZONE, Json
from tests.support.json_cluster import SETTINGS, Cluster, decoded, zoned

RULE = "podAntiAffinity by topology.kubernetes.io/zone"
ENTRY = {"rule": "podAntiAffinity", "topologyKey": ZONE, "afterSeconds": 300, "weight": 50}
APART = build.affinity(anti_required=[build.term(ZONE, build.selector("app=web"))])


def web(name: str, node: str | None = None, *, cpu: str = "1", mark: str = "") -> Json:
    annotations = {FALLBACK: json.dumps([ENTRY])}
    if mark:
        annotations[RELAXED] = json.dumps([{"rule": RULE, "why": mark}])
    return build.pod(name, labels={"app": "web"}, node=node, affinity=APART, annotations=annotations, cpu=cpu)


def unschedulable(name: str, since: str) -> Json:
    pod = web(name)
    pod["status"]["conditions"] = [build.unscheduled(lastTransitionTime=since)]
    return pod


def explained(pod: Json, epoch_s: float) -> Explanation:
    cluster = Cluster(zoned("a1 b1"), [web("first", "a1"), web("second", "b1")])
    cluster.epoch_s = epoch_s
    return cluster.explain(pod)


def test_a_pending_pod_is_told_what_relaxes_its_rule_and_how_long_it_has_waited() -> None:
    answer = explained(unschedulable("third", "1970-01-01T00:16:39Z"), 1120.0)
    assert answer.state == "unschedulable"
    assert (
        f"fallback: the pod fits once {RULE} counts as preferred with weight 50, after 300 s (120 s so far)"
        in answer.notes
    )


def test_a_pod_whose_rule_is_relaxed_in_its_next_cycle_fits() -> None:
    answer = explained(unschedulable("third", "1970-01-01T00:16:39Z"), 1300.0)
    assert answer.state == "schedulable"
    why = "after 300 s it kept the pod pending alone"
    assert answer.notes == (f"relaxed: {RULE} counts as preferred with weight 50: {why}",)


def test_a_rule_that_would_yield_to_a_relaxed_pod_blocks_another_one() -> None:
    plain = build.pod("plain", labels={"app": "web"})
    answer = Cluster(zoned("a1 b1"), [web("first", "a1"), web("second", "b1")]).explain(plain)
    assert [rule.kind for rule in answer.rules] == ["existingAntiAffinity"]


def test_a_pod_that_no_fallback_would_help_is_told_so() -> None:
    answer = Cluster(zoned("a1 b1"), [web("first", "a1"), web("second", "b1")]).explain(web("big", cpu="64"))
    assert (
        "fallback: the pod would not fit without the rules that have one either, so no time counts"
        in answer.notes
    )


def test_a_plugin_that_fails_on_a_relaxed_pod_keeps_it_pending() -> None:
    """As in the pod's cycle, where such a pod fits nowhere."""

    class Failing(FilterPlugin):
        name = "Failing"

        def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
            raise PluginFailed(self.name, "PreFilter", f"{context.pod.key} among {view.n_nodes} nodes")

    view = ClusterView(Cluster(zoned("a1")).state())
    profile = Profile("s", (Failing(),), ())
    notes = list(fallback_notes(decoded(web("third")), view, profile))
    assert notes == [
        "fallback: the pod would not fit without the rules that have one either, so no time counts"
    ]


def test_a_bound_pod_shows_which_rule_was_relaxed_and_why() -> None:
    placed = web("third", "a1", mark="after 300 s it kept the pod pending alone")
    answer = Cluster(zoned("a1 b1"), [web("first", "a1"), placed]).explain(placed)
    assert answer.state == "bound"
    assert answer.notes == (
        f"relaxed: {RULE} counts as preferred with weight 50 since the bind: after 300 s it kept the pod pending alone",
    )


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
