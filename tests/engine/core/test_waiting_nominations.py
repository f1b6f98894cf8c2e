"""Pods that wait between Reserve and Bind: where they wait is written, ended and counted after a restart."""

from __future__ import annotations

import pytest

from scheduler.daemon.settings.loading import default_settings
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.core.group_nominations import HOLD_FOR_S
from scheduler.engine.model.instructions import Bind, ClearNomination, WriteReservation
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import Gate, Semantics, Version, semantics_of
from tests.engine.core.preempting import sized_pod
from tests.engine.core.test_group_devices import GroupCluster
from tests.engine.core.volume_cluster import VolumeCluster
from tests.support.driving import Driver, bind_of, condition_of, each_of
from tests.support.storage_objects import claim, csi_node
from tests.support.volume_server import VolumeServer

_GATE = Gate.NOMINATED_NODE_NAME_FOR_EXPECTATION
#: Whether 1.35 began to nominate pods that wait, and its gate.
VERSIONS = [
    pytest.param(semantics_of(Version(1, 34)), False, id="1.34"),
    pytest.param(semantics_of(Version(1, 35)), True, id="1.35"),
    pytest.param(semantics_of(Version(1, 37)), True, id="1.37"),
    pytest.param(semantics_of(Version(1, 36), {_GATE: False}), False, id="gate off"),
    pytest.param(semantics_of(Version(1, 34), {_GATE: True}), True, id="gate on"),
]


def _cluster(server: VolumeServer | None = None, settings: Settings | None = None) -> VolumeCluster:
    """Return a node of 2 cpu, which attaches two volumes of a class that makes them slowly."""
    cluster = VolumeCluster(server, nodes=(), settings=settings)
    cluster.node("n", allocatable={"cpu": "2"})
    if server is None:
        cluster.apply(csi_node("n", d=2), claim("c", "made"), claim("d", "made"))
    return cluster


def _waits(cluster: VolumeCluster, *claims: str, cpu: str = "2", nominated: str = "") -> Pod:
    """Show a pod with these claims."""
    return cluster.waits(*claims or ("c",), name="zz-db", cpu=cpu, nominated=nominated)


@pytest.mark.parametrize(("semantics", "nominates"), VERSIONS)
def test_a_pod_that_waits_for_a_volume_is_nominated_in_the_versions_that_do(
    semantics: Semantics, *, nominates: bool
) -> None:
    cluster = _cluster(settings=default_settings(semantics))
    _waits(cluster)
    assert cluster.reserve().nominates == nominates


def test_a_nomination_is_written_also_where_a_watch_shows_it() -> None:
    """Its end may be on the way, such as that of an earlier wait."""
    cluster = _cluster()
    _waits(cluster, nominated="n")
    assert cluster.reserve().nominates


@pytest.mark.parametrize("is_shown", [False, True], ids=["no watch shows it", "shown"])
def test_a_wait_that_fails_ends_the_nomination(*, is_shown: bool) -> None:
    cluster = _cluster()
    pod = _waits(cluster)
    asked = cluster.reserve()
    if is_shown:
        cluster.update(pod, nominated_node_name="n")
    failed = cluster.handle(cluster.server.write(asked, 0))
    assert condition_of(failed).nominated_node_name == ""
    assert cluster.state.nominated.node_of(pod.uid) == ""
    cluster.audit()


def test_a_bind_that_fails_without_a_wait_ends_no_nomination() -> None:
    cluster = _cluster()
    pod = cluster.pod("p")
    cluster.cycle()
    assert condition_of(cluster.fail_bind(pod, "no")).nominated_node_name is None


def test_a_pod_counts_once_while_a_watch_shows_where_it_waits() -> None:
    cluster = _cluster()
    cluster.update(_waits(cluster, cpu="1"), nominated_node_name=cluster.reserve().node_name)
    assert not cluster.state.nominated
    sized_pod(cluster, "small", cpu="1")
    assert [type(each) for each in cluster.cycle()] == [Bind]
    cluster.audit()


def test_a_restart_keeps_the_room_from_a_pod_that_is_tried_before() -> None:
    cluster = _cluster()
    _waits(cluster)
    cluster.server.write(cluster.reserve())
    successor = _cluster(cluster.server)
    sized_pod(successor, "aa-web", cpu="1")
    _waits(successor, nominated="n")
    told = successor.cycle()
    assert condition_of(told).pod.name == "aa-web"
    assert condition_of(told).message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    again = successor.reserve()
    assert (again.pod.name, again.node_name) == ("zz-db", "n")
    successor.handle(successor.server.write(again))
    successor.server.provision("default/c")
    successor.watch()
    assert bind_of(successor.cycle()).pod.name == "zz-db"


def test_a_restart_keeps_the_volumes_that_a_node_will_attach() -> None:
    cluster = _cluster()
    _waits(cluster, "c", "d", cpu="100m")
    cluster.server.write(cluster.reserve())
    cluster.server.apply(claim("e", "made"))
    successor = _cluster(cluster.server)
    successor.waits("e", name="aa-web")
    _waits(successor, "c", "d", cpu="100m", nominated="n")
    message = condition_of(successor.cycle()).message
    assert message.startswith("0/1 nodes are available: 1 node(s) exceed max volume count.")


def _waiting_members(cluster: GroupCluster) -> list[WriteReservation]:
    cluster.member("p", 1, 2)
    cluster.member("q", 1, 2)
    return each_of(cluster.cycles(), WriteReservation)


def test_members_of_a_group_that_wait_are_nominated_for_as_long_as_they_wait() -> None:
    """A nomination of another's making ends after a while; theirs do not."""
    cluster = GroupCluster({"a": [1], "b": [1]})
    asked = _waiting_members(cluster)
    assert [each.nominates for each in asked] == [True, True]
    for each in asked:
        shown = cluster.machine.records.shown(each.pod.uid)
        assert shown is not None
        cluster.update(shown, nominated_node_name=each.node_name)
    cluster.machine._group_lives.nominations.end_at(asked[0].pod.group.key, cluster.now_s + HOLD_FOR_S)  # type: ignore[union-attr]
    told = cluster.live(HOLD_FOR_S + 1.0)
    assert each_of(told, ClearNomination) == []


def test_a_member_whose_group_became_too_small_is_no_longer_nominated_where_it_waited(driver: Driver) -> None:
    """After a restart its nomination is all that keeps its room; it ends in the API server as it ends here."""
    driver.node("n", allocatable={"cpu": "4", "pods": "9"})
    labels = {GROUP: "g", MIN_COUNT: "2"}
    lost = driver.pod("lost", labels=labels)
    waiting = driver.pod("waiting", labels=labels, status={"nominatedNodeName": "n"})
    driver.lose(lost)
    assert [each.pod.name for each in each_of(driver.live(0.1), ClearNomination)] == ["waiting"]
    assert driver.state.nominated.node_of(waiting.uid) == ""
