"""The audit finds every index and every state that does not follow from the records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler.engine.core.audit import MachineAudit
from scheduler.engine.core.pod_records import Phase, PodRecord
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from tests.engine.core.preempting import sized_pod
from tests.support.driving import Driver, evictions


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

    def record(self, pod: Pod) -> PodRecord:
        """Return the pod's record."""
        record = self.driver.machine.records.get(pod.uid)
        assert record is not None
        return record


def _forget_in_queue(scene: _Scene) -> None:
    scene.driver.queue.add(scene.binding, 0.0)


def _forget_preemptor(scene: _Scene) -> None:
    scene.record(scene.low).preemptors = ()


def _forget_preemption(scene: _Scene) -> None:
    scene.record(scene.high).preemption = None


def _forget_binding(scene: _Scene) -> None:
    scene.record(scene.binding).binding = None


def _forget_assumed(scene: _Scene) -> None:
    scene.driver.state.forget(scene.binding.uid)


def _forget_phase(scene: _Scene) -> None:
    scene.record(scene.high).phase = Phase.BOUND


def _forget_nomination(scene: _Scene) -> None:
    scene.driver.state.nominated.nominate(scene.low, "m", None, {})


def _forget_member(scene: _Scene) -> None:
    scene.driver.state.groups.remove_pending(scene.member)


def _forget_answer(scene: _Scene) -> None:
    scene.driver.machine.records.n_unanswered += 1


def _forget_record(scene: _Scene) -> None:
    records = scene.driver.machine.records
    records._by_uid["gone"] = PodRecord("gone", Phase.GONE)


@pytest.mark.parametrize(
    "forget", [each for name, each in list(globals().items()) if name.startswith("_forget")]
)
def test_what_was_forgotten_is_found(forget: Callable[[_Scene], None]) -> None:
    scene = _Scene()
    driver = scene.driver
    driver.audit()
    audit = MachineAudit(driver.machine.records, driver.state, driver.queue)
    assert not any(audit.step() for _ in range(6))
    forget(scene)
    assert driver.machine.differences()
    assert any(audit.step() for _ in range(6))
