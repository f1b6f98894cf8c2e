"""The audit finds every index and every state that does not follow from the records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler.engine.core.audit import MachineAudit
from scheduler.engine.core.pod_records import Phase, PodRecord
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from tests.engine.core.preempting import sized_pod
from tests.support.driving import Driver, all_differences, evictions


class _Scene:
    """A pod that is being bound, a pod that waits for its victim, and a member of a group that is not complete."""

    def __init__(self) -> None:
        self.driver = Driver()
        for name in ("n", "m"):
            self.driver.node(name, allocatable={"cpu": "1"})
        self.low = sized_pod(self.driver, "low", node="n")
        self.binding = sized_pod(self.driver, "binding", 9)
        self.driver.cycle()
        self.high = sized_pod(self.driver, "high", 9)
        assert evictions(self.driver.cycle()) == ["low"]
        self.member = sized_pod(self.driver, "member", labels={GROUP: "g", MIN_COUNT: "2"})

        self.records = self.driver.machine.records

    def change(self, pod: Pod, name: str, value: object) -> None:
        setattr(self.records.get(pod.uid), name, value)


_WAYS: list[Callable[[_Scene], object]] = [
    lambda scene: scene.driver.queue.add(scene.binding, 0.0),
    lambda scene: scene.change(scene.low, "preemptors", ()),
    lambda scene: scene.change(scene.high, "preemption", None),
    lambda scene: scene.change(scene.binding, "binding", None),
    lambda scene: scene.change(scene.high, "phase", Phase.BOUND),
    lambda scene: scene.change(scene.low, "phase", Phase.GONE),
    lambda scene: scene.driver.state.forget(scene.binding.uid),
    lambda scene: scene.driver.state.nominated.nominate(scene.low, "m", None, {}),
    lambda scene: scene.driver.state.groups.remove_pending(scene.member),
    lambda scene: setattr(scene.records, "n_unanswered", scene.records.n_unanswered + 1),
    lambda scene: scene.records._by_uid.update(gone=PodRecord("gone", Phase.GONE)),
]


@pytest.mark.parametrize("forget", _WAYS)
def test_what_was_forgotten_is_found(forget: Callable[[_Scene], object]) -> None:
    scene = _Scene()
    driver = scene.driver
    driver.audit()
    audit = MachineAudit(driver.machine.records, driver.state, driver.queue)
    assert not any(audit.step() for _ in range(6))
    forget(scene)
    assert all_differences(driver.machine)
    assert any(audit.step() for _ in range(6))
