"""Extended resources that a device class provides, in scores: devices count as what the node offers."""

import json
from random import Random

import pytest

from scheduler.daemon.settings.loading import parse_settings
from scheduler.engine.core.decide import ScheduleResult, decide
from scheduler.engine.framework.events import Hint, Resource
from scheduler.engine.state.cluster_view import ClusterView
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support import build
from tests.support.device_documents import device_class, device_slice, resource_claim
from tests.support.driving import NAME

_GPU = "example.com/gpu"


def _cluster() -> ClaimCluster:
    """Return nodes with four devices each, of which three on node a are allocated."""
    strategy = {"type": "LeastAllocated", "resources": [{"name": _GPU, "weight": 1}]}
    profile = {
        "schedulerName": NAME,
        "pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}},
            {
                "name": "NodeResourcesBalancedAllocation",
                "args": {"resources": [{"name": "cpu"}, {"name": _GPU}]},
            },
        ],
    }
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    cluster = ClaimCluster(4, settings=parse_settings(json.dumps(config), "config"))
    cluster.show(device_class("gpu", _GPU))
    results = [
        {"request": "r", "driver": "gpu.example.com", "pool": "a", "device": f"gpu-{index}"}
        for index in range(3)
    ]
    cluster.store(resource_claim("held", 3, allocation={"devices": {"results": results}}))
    cluster.watch()
    return cluster


def _scores(cluster: ClaimCluster, plugin: str) -> dict[str, int]:
    """Return the plugin's scores of the nodes for a pod that requests one device."""
    container = {"name": "c", "image": "i", "resources": {"requests": {_GPU: "1"}}}
    pod = cluster.decoded(build.pod("p", spec={"schedulerName": NAME, "containers": [container]}))
    profile = cluster.machine._profiles[NAME]
    result = decide(pod, ClusterView(cluster.state), profile, Random(1))
    assert isinstance(result, ScheduleResult)
    (found,) = (each for each in result.scores.by_plugin if each.plugin == plugin)
    return {name: int(found.scores[row]) for name, row in cluster.state.nodes.row_by_name.items()}


@pytest.mark.parametrize(
    ("offered", "hint"),
    [({}, Hint.QUEUE), ({_GPU: "0"}, Hint.QUEUE), ({_GPU: "1"}, Hint.SKIP), ({_GPU: "2"}, Hint.QUEUE)],
)
def test_a_new_node_wakes_a_pod_unless_it_offers_too_little_itself(offered: build.Json, hint: Hint) -> None:
    cluster = _cluster()
    cluster.node("c", allocatable=offered)
    container = {"name": "c", "image": "i", "resources": {"requests": {_GPU: "2"}}}
    pod = cluster.decoded(build.pod("p", spec={"schedulerName": NAME, "containers": [container]}))
    plugins = cluster.machine._profiles[NAME].rejecting_plugins()
    (fit,) = (each for each in plugins if each.name == "NodeResourcesFit")
    (after_node,) = (each.hint for each in fit.events_to_register() if each.resource is Resource.NODE)
    assert after_node is not None
    assert after_node(pod, None, cluster.state.node("c")) is hint


def test_free_devices_score_as_the_slices_are_now() -> None:
    cluster = _cluster()
    assert _scores(cluster, "NodeResourcesFit") == {"a": 0, "b": 75}
    cluster.show(device_slice("b", 1))
    assert _scores(cluster, "NodeResourcesFit") == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    ("plugin", "scores"),
    [
        ("NodeResourcesFit", {"a": 0, "b": 0, "c": 50, "d": 75}),
        ("NodeResourcesBalancedAllocation", {"a": 69, "b": 50, "c": 62, "d": 68}),
    ],
)
def test_a_node_that_offers_the_resource_itself_scores_by_that(plugin: str, scores: dict[str, int]) -> None:
    """Beside nodes with devices: one with a single device, and one where a pod without requests runs."""
    cluster = _cluster()
    cluster.show(device_slice("b", 1))
    cluster.node("c", allocatable={_GPU: "2"})
    cluster.show(device_slice("c", 1))
    cluster.node("d", allocatable={_GPU: "4", "cpu": "1"})
    cluster.pod("idle", node="d")
    assert _scores(cluster, plugin) == scores
