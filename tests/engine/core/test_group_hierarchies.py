"""The levels of a machine room come from Kueue's Topologies where the configuration names none."""

from __future__ import annotations

import json

import pytest

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.group_topology import Topology
from scheduler.engine.model.kueue import KueueKind, KueueObject
from scheduler.engine.model.stimuli import ObjectGone, ObjectSeen
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.engine.state.hierarchies import Hierarchies
from tests.engine.core.test_group_levels import BLOCK, RACK, members, message, placed
from tests.support.build import Json
from tests.support.driving import Driver

HALL, HOST = "example.com/hall", "kubernetes.io/hostname"


@pytest.fixture
def driver(driver: Driver) -> Driver:
    """Return a machine with two blocks, each with a rack of the same name that has room for two."""
    for block in ("a", "b"):
        for index in range(2):
            labels = {BLOCK: block, RACK: "1", HOST: f"{block}{index}"}
            driver.node(f"{block}{index}", labels=labels, allocatable={"cpu": "1", "pods": "10"})
    return driver


def _object(kind: KueueKind, name: str, **spec: object) -> KueueObject:
    found: KueueObject = KINDS[kind].decode(json.dumps({"metadata": {"name": name}, "spec": spec}).encode())
    return found


def _show(driver: Driver, kind: KueueKind, name: str, **spec: object) -> None:
    driver.handle(ObjectSeen(_object(kind, name, **spec)))


def _levels(*keys: str) -> list[Json]:
    return [{"nodeLabel": key} for key in keys]


@pytest.mark.parametrize("kind", [KueueKind.TOPOLOGY, KueueKind.TOPOLOGY_V1BETA1])
def test_racks_of_two_blocks_with_one_name_are_two_racks_where_a_topology_says_so(
    driver: Driver, kind: KueueKind
) -> None:
    _show(driver, kind, "room", levels=_levels(BLOCK, RACK, HOST))
    members(driver, 3, required=RACK)
    assert "a/1 has room for 2, b/1 has room for 2" in message(driver)


def test_without_a_topology_a_rack_is_what_its_label_says(driver: Driver) -> None:
    members(driver, 3, required=RACK)
    assert len(placed(driver)) == 3


@pytest.mark.parametrize("levels", [_levels(RACK, HOST), None], ids=["its levels change", "it vanishes"])
def test_a_waiting_group_is_asked_again_when_the_topology_changes(
    driver: Driver, levels: list[Json] | None
) -> None:
    """At once, without another event."""
    _show(driver, KueueKind.TOPOLOGY, "room", levels=_levels(BLOCK, RACK, HOST))
    members(driver, 3, required=RACK)
    assert message(driver)
    driver.pass_time(30)
    assert not placed(driver)
    if levels is None:
        driver.handle(ObjectGone(KueueKind.TOPOLOGY, "room"))
    else:
        _show(driver, KueueKind.TOPOLOGY, "room", levels=levels)
    assert len(placed(driver)) == 3


def test_a_preferred_rack_of_a_topology_implies_few_blocks(driver: Driver) -> None:
    _show(driver, KueueKind.TOPOLOGY, "room", levels=_levels(BLOCK, RACK, HOST))
    driver.node("c0", labels={BLOCK: "a", RACK: "2", HOST: "c0"}, allocatable={"cpu": "1", "pods": "10"})
    members(driver, 3, preferred=RACK)
    assert set(placed(driver).values()) == {"a0", "a1", "c0"}


def test_the_resource_flavor_in_the_node_selector_says_which_topology_counts() -> None:
    """Without it none counts that a ResourceFlavor names, and one counts that none names."""
    rooms, rack = Hierarchies(), Topology((RACK,))
    for name, outer in (("gpus", BLOCK), ("cpus", HALL)):
        rooms.upsert(_object(KueueKind.TOPOLOGY, name, levels=_levels(outer, RACK)))
        rooms.upsert(_object(KueueKind.FLAVOR, f"on-{name}", nodeLabels={"pool": name}, topologyName=name))
    assert rooms.implied(rack, ()) == rack
    assert rooms.implied(rack, [("pool", "gpus")]).required == (BLOCK, RACK)
    assert rooms.implied(rack, [("pool", "cpus"), ("disk", "ssd")]).required == (HALL, RACK)
    assert rooms.implied(rack, [("pool", "others")]) == rack
    assert rooms.implied(Topology((HALL,)), [("pool", "gpus")]) == Topology((HALL,))
    # Its own nodes may be the only ones with the outer label.
    rooms.remove(KueueKind.TOPOLOGY, "cpus")
    assert rooms.implied(rack, ()) == rack
    rooms.remove(KueueKind.FLAVOR, "on-gpus")
    assert rooms.implied(rack, ()).required == (BLOCK, RACK)
    rooms.remove(KueueKind.TOPOLOGY, "gpus")
    assert rooms.all_levels() == {}


def test_of_two_topologies_that_imply_different_levels_none_counts() -> None:
    """Unless they agree on the level that is asked for."""
    rooms = Hierarchies()
    for name, outer in (("gpus", BLOCK), ("cpus", HALL)):
        rooms.upsert(_object(KueueKind.TOPOLOGY, name, levels=_levels(outer, RACK)))
    assert rooms.implied(Topology((RACK,)), ()) == Topology((RACK,))
    assert rooms.implied(Topology((BLOCK,)), ()) == Topology((BLOCK,))
    rooms.upsert(KueueObject(KueueKind.TOPOLOGY, "cpus", (BLOCK, RACK, HOST)))
    assert rooms.implied(Topology((RACK,)), ()) == Topology((BLOCK, RACK))


def test_of_two_served_versions_of_a_topology_the_newer_counts() -> None:
    """Watches of both are not in step."""
    rooms = Hierarchies()
    for kind, outer in ((KueueKind.TOPOLOGY, BLOCK), (KueueKind.TOPOLOGY_V1BETA1, HALL)):
        rooms.upsert(_object(kind, "room", levels=_levels(outer, RACK)))
    assert rooms.all_levels() == {"room": (BLOCK, RACK)}
    rooms.remove(KueueKind.TOPOLOGY, "room")
    assert rooms.all_levels() == {"room": (HALL, RACK)}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"levels": [{"nodeLabel": "no key"}]}, 'Topology: spec.levels[0].nodeLabel: found "no key"'),
        ({"levels": "block"}, "Topology: Expected `array`, got `str` - at `$.spec.levels`"),
    ],
)
def test_a_malformed_topology_is_refused_with_its_field(spec: Json, problem: str) -> None:
    document = json.dumps({"metadata": {"name": "room"}, "spec": spec}).encode()
    with pytest.raises(MalformedObjectError) as caught:
        KINDS[KueueKind.TOPOLOGY].decode(document)
    assert str(caught.value).startswith(problem)
