"""Exempt namespaces: explanations ignore the pods that the scheduler ignores."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from scheduler.daemon.assembly.profiles import annotating_namespaces, build_profiles, exempt_namespaces
from scheduler.daemon.settings.loading import parse_settings
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.explainer import explain
from scheduler.tools.explain.formats.explanation import Explanation
from tests.support import build
from tests.support.json_cluster import Cluster, web, zoned

EVERYBODY = build.affinity(anti_required=[build.term(build.ZONE, build.selector(), namespace_selector={})])


def explanation_of(cluster: Cluster, pod: build.Json) -> Explanation:
    """Return the explanation with namespace daemons exempt."""
    args = {"exemptNamespaces": ["daemons"], "annotationNamespaces": {"selector": {}}}
    config = build.configuration({"InterPodAffinity": args})
    settings = parse_settings(json.dumps(config), "test")
    (profile,) = settings.profiles
    annotating = annotating_namespaces(settings)
    state = cluster.state(ClusterState(exempt_namespaces(settings), annotating=annotating))
    request = replace(
        cluster.request(pod, state),
        new_profile=lambda view: build_profiles(settings, view)[profile.scheduler_name],
    )
    return explain(request)


@pytest.mark.parametrize("declares", ["incoming", "running", "both"])
@pytest.mark.parametrize("limit", [1, 2])
def test_an_exempt_pod_blocks_no_pod(declares: str, limit: int) -> None:
    term = build.term(build.ZONE, build.selector(), namespace_selector={})
    text = json.dumps(build.affinity(anti_required=[{**term, "maxPodsPerDomain": limit}]))
    daemons = [build.pod(f"d{n}", namespace="daemons", node="a1") for n in range(3)]
    incoming = web("p")
    for pod in (*(daemons if declares != "incoming" else ()), *([incoming] if declares != "running" else ())):
        pod["metadata"]["annotations"] = {"affinity-scheduler.io/affinity": text}
    answer = explanation_of(Cluster(zoned("a1 a2"), daemons), incoming)
    assert (answer.state, answer.rules) == ("schedulable", ())


def test_an_exempt_pod_is_not_blocked() -> None:
    cluster = Cluster(zoned("a1"), [web("hermit", "a1", affinity=EVERYBODY)])
    daemon = build.pod("d", namespace="daemons", affinity=EVERYBODY)
    assert explanation_of(cluster, daemon).state == "schedulable"
    assert explanation_of(cluster, web("p")).state == "unschedulable"


def test_only_pods_that_count_are_named_and_suggested_to_leave() -> None:
    cluster = Cluster(
        zoned("a1 a2"), [build.pod("d", namespace="daemons", node="a1"), build.pod("seen", node="a2")]
    )
    answer = explanation_of(cluster, web("p", affinity=EVERYBODY))
    assert answer.state == "unschedulable"
    (rule,) = answer.rules
    assert [pod.key for pod in rule.pods.shown] == ["default/seen"]
    moved = [change.pod for each in answer.suggestions for change in each.changes if hasattr(change, "pod")]
    assert "daemons/d" not in json.dumps(moved)
