"""What another version of Kubernetes decides otherwise reaches every part that is built from the configuration."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from scheduler.assembly.profiles import build_profiles, build_queue, new_state
from scheduler.assembly.watched_kinds import kinds_for
from scheduler.model.pods import Pod
from scheduler.model.semantics import DEFAULT_SEMANTICS, Version, semantics_of
from scheduler.plugins.pod_topology_spread.plugin import NAME as SPREAD
from scheduler.plugins.pod_topology_spread.plugin import PodTopologySpread
from scheduler.settings.loading import default_settings
from scheduler.settings.resolved import Settings
from scheduler.state.cluster_view import ClusterView
from tests.support import build

PROFILE = "affinity-scheduler"
NOW = DEFAULT_SEMANTICS.version


def emulated(version: Version) -> Settings:
    return replace(default_settings(), semantics=semantics_of(version))


def decoded(settings: Settings, **more: object) -> Pod:
    (kind,) = (each for each in kinds_for(settings) if each.kind == "Pod")
    document = build.pod("p", labels={"version": "2"}, spec=more)
    pod = kind.decode(msgspec.Raw(msgspec.json.encode(document)))
    assert isinstance(pod, Pod)
    return pod


@pytest.mark.parametrize(("version", "requested"), [(Version(1, 33), []), (NOW, ["cpu"])])
def test_a_decoder_reads_the_fields_of_its_version(version: Version, requested: list[str]) -> None:
    pod = decoded(emulated(version), resources={"requests": {"cpu": "2"}})
    assert list(pod.spec.pod_requests or ()) == requested


@pytest.mark.parametrize(("version", "selects_others"), [(Version(1, 26), True), (NOW, False)])
def test_a_plugin_has_the_gates_of_its_version(version: Version, *, selects_others: bool) -> None:
    settings = emulated(version)
    constraint = {
        "maxSkew": 1,
        "topologyKey": build.ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "matchLabelKeys": ["version"],
    }
    pod = decoded(settings, topologySpreadConstraints=[constraint])
    profile = build_profiles(settings, ClusterView(new_state(settings)))[PROFILE]
    plugin = next(each for each in profile.filters if each.name == SPREAD)
    assert isinstance(plugin, PodTopologySpread)
    (spread,) = plugin.constraints.of(pod, hard=True)
    assert spread.selector.matches({"version": "1"}) is selects_others


@pytest.mark.parametrize(("version", "pops_early"), [(Version(1, 32), False), (NOW, True)])
def test_the_queue_has_the_gates_of_its_version(version: Version, *, pops_early: bool) -> None:
    """A pod that backs off after a rejection is tried at once if no other pod is active, since 1.33."""
    settings = emulated(version)
    profiles = build_profiles(settings, ClusterView(new_state(settings)))
    queue = build_queue(profiles, settings, max_in_unschedulable_s=300.0)
    queue.add(decoded(settings), 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.put_back(queued, frozenset({"NodeResourcesFit"}), 0.0)
    queue.wake(queued.uid, 0.0)
    assert queue.depths()["backoff"] == 1
    assert queue.can_pop() is pops_early
    assert (queue.pop(0.1) is not None) is pops_early
    assert pops_early or queue.pop(60.0) is not None
