"""What another version of Kubernetes decides otherwise reaches every part that is built from the configuration."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from scheduler.daemon.assembly.profiles import build_profiles, build_queue, new_state
from scheduler.daemon.assembly.watched_kinds import kinds_for
from scheduler.daemon.settings.loading import default_settings
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Gate, Version, semantics_of
from scheduler.engine.model.terms import Taint
from scheduler.engine.plugins.node_declared_features import NodeDeclaredFeatures
from scheduler.engine.plugins.pod_topology_spread.plugin import NAME as SPREAD
from scheduler.engine.plugins.pod_topology_spread.plugin import PodTopologySpread
from scheduler.engine.state.cluster_view import ClusterView
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


@pytest.mark.parametrize(("version", "requested"), [(Version(1, 32), []), (NOW, ["cpu"])])
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
    queue.wake_each((queued.uid,), 0.0)
    assert queue.depths()["backoff"] == 1
    assert queue.can_pop() is pops_early
    assert (queue.pop(0.1) is not None) is pops_early
    assert pops_early or queue.pop(60.0) is not None


def test_a_profile_has_the_plugins_of_its_version() -> None:
    for version, is_there in ((Version(1, 36), True), (Version(1, 35), False)):
        settings = emulated(version)
        profile = build_profiles(settings, ClusterView(new_state(settings)))[PROFILE]
        scorers = [weighted.plugin for weighted in profile.scorers]
        plugins = (*profile.filters, *profile.post_filters, *profile.pre_enqueue, *scorers)
        assert any(isinstance(each, NodeDeclaredFeatures) for each in plugins) is is_there


@pytest.mark.parametrize(("version", "held"), [(Version(1, 35), None), (NOW, ["cpu"])])
def test_resources_of_a_pods_status_count_since_1_36(version: Version, held: list[str] | None) -> None:
    (kind,) = (each for each in kinds_for(emulated(version)) if each.kind == "Pod")
    document = build.pod("p") | {"status": {"resources": {"requests": {"cpu": "2"}}}}
    pod = kind.decode(msgspec.Raw(msgspec.json.encode(document)))
    assert isinstance(pod, Pod)
    assert (pod.resize and list(pod.resize.pod_requests or ())) == held


#: The operator, the value of the toleration and that of the taint.
COMPARED = {
    "less": ("Lt", "10", "9", True),
    "equal is not less": ("Lt", "10", "10", False),
    "greater": ("Gt", "-10", "0", True),
    "not greater": ("Gt", "10", "9", False),
    "no canonical number": ("Lt", "010", "9", False),
    "a taint without a number": ("Gt", "1", "many", False),
    "more than 64 bits": ("Lt", "9223372036854775808", "1", False),
    "the most that 64 bits hold": ("Lt", "9223372036854775807", "1", True),
}


@pytest.mark.parametrize(("operator", "own", "other", "tolerates"), COMPARED.values(), ids=COMPARED)
def test_tolerations_compare_numbers_with_their_gate(
    operator: str, own: str, other: str, *, tolerates: bool
) -> None:
    """It is alpha; without it such a toleration matches no taint."""
    declared = {"key": "k", "operator": operator, "value": own, "effect": "NoSchedule"}
    taint = Taint("k", other, "NoSchedule")
    for is_on in (True, False):
        gates = {Gate.TAINT_TOLERATION_COMPARISON_OPERATORS: is_on}
        settings = replace(default_settings(), semantics=semantics_of(NOW, gates))
        read = decoded(settings, tolerations=[declared]).spec.tolerations
        assert any(each.tolerates(taint) for each in read) is (tolerates and is_on)
