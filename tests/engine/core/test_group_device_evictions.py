"""
Pods evicted for the devices of a whole group, against brute force on random small clusters.

If pods are evicted, the group fits once their devices are free, and would not with one of the pods back.
"""

from __future__ import annotations

import json
from random import Random

import pytest

from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.model.instructions import Attempted, EvictVictim, Instruction, WriteReservation
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import PodSeen
from tests.engine.core.test_group_devices import GroupCluster, exists
from tests.support import build
from tests.support.device_documents import DRIVER, resource_claim
from tests.support.driving import NAME, attempt_of, each_of, settings_of

PRIORITY = 10


class _Full(GroupCluster):
    """A cluster with running pods that have devices."""

    def __init__(self, nodes: dict[str, list[int]], settings: Settings | None = None) -> None:
        super().__init__(nodes, settings=settings)
        self.running: dict[str, Pod] = {}

    def use(self, name: str, node: str, devices: list[int], priority: int, *, shared_with: str = "") -> None:
        """Show a running pod with a claim of these devices of its node, or with the one of another pod."""
        consumer = {"resource": "pods", "name": name, "uid": f"uid-default-{name}"}
        if not shared_with:
            results = [
                {"request": "r", "driver": DRIVER, "pool": node, "device": f"gpu-{number}"}
                for number in devices
            ]
            claim = resource_claim(
                f"of-{name}",
                len(devices),
                allocation={"devices": {"results": results}, "allocationTimestamp": "2026-01-01T00:00:00Z"},
                reservedFor=[consumer],
            )
        else:
            claim = json.loads(json.dumps(self.server.claims[f"default/of-{shared_with}"]))
            claim["status"]["reservedFor"].append(consumer)
        self.apply(claim)
        entries = [{"name": "c", "resourceClaimName": f"of-{shared_with or name}"}]
        spec = {"schedulerName": NAME, "resourceClaims": entries, "priority": priority}
        self.running[name] = self.decoded(build.pod(name, node=node, spec=spec))
        self.handle(PodSeen(self.running[name]))

    def group(self, members: list[tuple[int, bool]]) -> None:
        for number, (count, is_matched) in enumerate(members):
            self.member(f"m{number}", count, len(members), is_matched=is_matched, priority=PRIORITY)

    def evict(self, instructions: list[Instruction]) -> list[str]:
        """Carry out the evictions; the claims stay allocated."""
        victims: list[str] = []
        orders = each_of(instructions, EvictVictim)
        while orders:
            order = orders.pop(0)
            victims.append(order.victim.name)
            del self.running[order.victim.name]
            orders += self.carry_out(order)
        return sorted(victims)

    def release(self, *names: str) -> None:
        """Deallocate the claims of pods that are gone, as their controller does."""
        for name in names:
            if f"default/of-{name}" in self.server.claims:
                self.store({**self.server.claims[f"default/of-{name}"], "status": {}})
        self.watch()


def _placed(instructions: list[Instruction]) -> set[str]:
    return {each.pod.name for each in each_of(instructions, WriteReservation)}


def _check(seed: int, *, is_least: bool = True) -> bool:
    """Compare one drawn case; return whether pods were evicted."""
    draw = Random(seed)
    nodes = {
        name: [draw.randrange(2) for _ in range(draw.choice((1, 2, 3)))]
        for name in ("a", "b", "c")[: draw.choice((1, 2, 3))]
    }
    kind = draw.choice(((1, False), (1, False), (2, False), (2, True)))
    members = [kind] * draw.choice((2, 2, 3))
    cluster = _Full(nodes)
    used: dict[str, tuple[str, list[int], int]] = {}
    for node, fabrics in nodes.items():
        left = list(range(len(fabrics)))
        while left and draw.random() < 0.8:
            taken = [left.pop(0) for _ in range(min(len(left), draw.choice((1, 1, 2))))]
            used[f"r{len(used)}"] = (node, taken, draw.choice((0, 0, 1, 5, PRIORITY, 20)))
    for name, (node, taken, priority) in used.items():
        cluster.use(name, node, taken, priority)

    def fits_without(gone: set[str]) -> bool:
        kept = {(node, each) for name, (node, taken, _) in used.items() if name not in gone for each in taken}
        free = {
            node: [(fabric, 0) for number, fabric in enumerate(fabrics) if (node, number) not in kept]
            for node, fabrics in nodes.items()
        }
        return exists(free, [([[0]] * count, is_matched) for count, is_matched in members])

    lower = {name for name, (_, _, priority) in used.items() if priority < PRIORITY}
    cluster.group(members)
    instructions = cluster.cycles()
    if fits_without(set()):
        assert len(_placed(instructions)) == len(members), seed
        return False
    assert not _placed(instructions)
    victims = cluster.evict(instructions)
    assert set(victims) <= lower
    assert bool(victims) == fits_without(lower), (seed, victims, lower)
    if victims:
        assert fits_without(set(victims)), (seed, victims)
        assert not is_least or not any(fits_without(set(victims) - {one}) for one in victims), (seed, victims)
        cluster.pass_time(30)
        assert cluster.evict(cluster.cycles()) == [], f"{seed}: the devices of the victims are on their way"
        cluster.release(*victims)
        cluster.pass_time(30)
        assert len(_placed(cluster.cycles())) == len(members), seed
    cluster.audit()
    return bool(victims)


def test_beyond_its_decisions_a_search_still_evicts_for_a_groups_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More pods than needed may leave then."""
    monkeypatch.setattr("scheduler.engine.core.group_preemption._MOST_DECISIONS", 0)
    assert sum(_check(seed, is_least=False) for seed in range(40)) > 5


@pytest.mark.drawn_seeds(size=40, n_blocks=2)
def test_pods_leave_for_a_group_if_and_only_if_that_places_it(seeds: range) -> None:
    n_evicted = sum(map(_check, seeds))
    assert 5 < n_evicted < 40 or seeds.start, "other seeds may be unlucky"


def test_a_pod_that_shares_its_claim_with_one_of_higher_priority_stays() -> None:
    """Its device would not come free."""
    cluster = _Full({"a": [0, 0]})
    cluster.use("low", "a", [0, 1], 0)
    cluster.use("high", "a", [], 20, shared_with="low")
    cluster.group([(1, False)] * 2)
    assert cluster.evict(cluster.cycles()) == []


def test_both_pods_of_a_claim_leave_for_its_devices() -> None:
    cluster = _Full({"a": [0, 0]})
    cluster.use("first", "a", [0, 1], 0)
    cluster.use("second", "a", [], 1, shared_with="first")
    cluster.group([(1, False)] * 2)
    assert cluster.evict(cluster.cycles()) == ["first", "second"]


def test_a_pod_leaves_for_the_devices_of_the_claim_that_was_created_for_it() -> None:
    """For its extended resources; its spec names no claim."""
    cluster = _Full({"a": [0, 0]})
    cluster.use("low", "a", [0, 1], 0)
    claim = cluster.server.claims["default/of-low"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "low", "uid": "uid-default-low", "controller": True}
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    meta = {**claim["metadata"], "ownerReferences": [owner], "annotations": annotations}
    cluster.apply({**claim, "metadata": meta})
    spec = {"schedulerName": NAME, "priority": 0}
    cluster.running["low"] = cluster.decoded(build.pod("low", node="a", spec=spec))
    cluster.lose(cluster.running["low"])
    cluster.handle(PodSeen(cluster.running["low"]))
    cluster.group([(1, False)] * 2)
    assert cluster.evict(cluster.cycles()) == ["low"]


def test_a_group_waits_for_devices_that_are_being_released() -> None:
    """And says so; the pod that is left keeps its place."""
    cluster = _Full({"a": [0, 0], "b": [0]})
    cluster.use("gone", "a", [0, 1], 0)
    cluster.use("left", "b", [0], 0)
    cluster.group([(1, False)] * 2)
    assert cluster.evict(cluster.cycles()) == ["gone"]
    cluster.pass_time(30)
    instructions = cluster.cycles()
    attempt = each_of(instructions, Attempted)[0]
    assert attempt.message.endswith("not eligible due to devices that are being released.")
    assert cluster.evict(instructions) == []


def test_the_devices_of_a_members_own_claim_are_not_awaited() -> None:
    """It was reserved for the member on a node that was cordoned since, and is not released while that waits."""
    cluster = _Full({"a": [0], "b": [0]})
    cluster.use("m0", "b", [0], PRIORITY)
    allocated = cluster.server.claims["default/of-m0"]["status"]
    cluster.lose(cluster.running["m0"])
    cluster.node("b", labels={"rack": "r"}, unschedulable=True)
    cluster.group([(1, False)])
    claim = cluster.server.claims["default/of-m0"]
    consumer = {"resource": "pods", "name": "m0", "uid": "uid-m0"}
    of_node = {"nodeSelectorTerms": [build.node_term(named=["in b"])]}
    allocation = {**allocated["allocation"], "nodeSelector": of_node}
    cluster.apply({**claim, "status": {"allocation": allocation, "reservedFor": [consumer]}})
    attempt = each_of(cluster.cycles(), Attempted)[0]
    assert "being released" not in attempt.message


def test_a_setting_lets_no_pod_leave_for_devices() -> None:
    cluster = _Full({"a": [0, 0]}, settings_of("DynamicResources", preemptForDevices=False))
    cluster.use("low", "a", [0, 1], 0)
    cluster.group([(1, False)] * 2)
    instructions = cluster.cycles()
    assert cluster.evict(instructions) == []
    assert attempt_of(instructions).result == "unschedulable"
