"""
Claims made to hold a scheduler up: how much work a piece of a cycle does for one of them, whatever it asks for.

Counted in what the work is bounded by, not in time: steps of selectors, and steps of the search.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from scheduler.engine.cel import CompiledSelector
from scheduler.engine.model.instructions import Instruction, WriteReservation
from scheduler.engine.model.stimuli import CycleDue
from scheduler.engine.plugins.dynamic_resources.allocator import DEFAULT_STEPS
from scheduler.engine.plugins.dynamic_resources.search import Budget
from scheduler.engine.plugins.dynamic_resources.selection import MAX_COST
from tests.engine.core.claim_cluster import ClaimCluster
from tests.proof.hostile.claims import N_DEVICES, costly, distinct_devices, hostile_claims
from tests.support.build import Json

_N_NODES = 12
#: Pieces of a cycle with the whole budget.
_MAX_PIECES = 16
#: So much more than a bound: single steps, and the last evaluation.
_MORE = 0.3


class _Counted:
    """The work of one piece of a cycle after the other, as parts of what a piece may take."""

    def __init__(self) -> None:
        self.n_nodes, self.costs, self.budgets = 0, list[int](), list[Budget]()
        self.cluster = ClaimCluster(nodes=())
        for _ in range(_N_NODES):
            self.add_node()

    def add_node(self) -> None:
        """Add a node whose devices are like no others."""
        name = f"n{self.n_nodes}"
        self.cluster.node(name)
        self.cluster.show(distinct_devices(name, self.n_nodes))
        self.n_nodes += 1

    def cycle(self) -> tuple[float, float, list[Any]]:
        """
        Run a cycle, later than any backoff; return the most evaluations and steps of a piece, and the instructions.

        The first evaluation of each piece, which may cost as much as any, does not count.
        """
        machine, costs, steps = self.cluster.machine, list[float](), list[float]()
        instructions = self._measured(lambda: machine.handle(CycleDue(), self.cluster.now_s), costs, steps)
        while machine.is_in_cycle:
            instructions += self._measured(machine.step, costs, steps)
        assert sum(steps) < _MAX_PIECES * (1 + _MORE)
        self.cluster.now_s += 60.0
        self.cluster.pass_time(0.0)
        return max(costs), max(steps), instructions

    def _measured(
        self, run: Callable[[], list[Instruction]], costs: list[float], steps: list[float]
    ) -> list[Instruction]:
        """Run a piece; add its evaluations and its steps."""
        n_evaluated, n_left = len(self.costs), [budget.n_left for budget in self.budgets]
        instructions = run()
        n_left += [DEFAULT_STEPS] * (len(self.budgets) - len(n_left))
        costs.append(sum(self.costs[n_evaluated + 1 :]) / MAX_COST)
        used = (before - budget.n_left for before, budget in zip(n_left, self.budgets, strict=True))
        steps.append(sum(used) / DEFAULT_STEPS)
        return instructions

    def ask(self, name: str, devices: Json) -> None:
        """Create a pod with a claim."""
        metadata = {"name": name, "namespace": "default", "uid": f"claim-{name}"}
        self.cluster.store({"kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices}})
        self.cluster.watch()
        self.cluster.using(name, name=name)


@pytest.fixture
def counted() -> Any:
    """Yield a cluster whose work is counted."""
    world = _Counted()
    evaluate, begin = CompiledSelector.evaluate, Budget.__init__

    def counting(self: CompiledSelector, device: Any, *limit: int) -> Any:
        answer = evaluate(self, device, *limit)
        world.costs.append(answer[1])
        return answer

    def beginning(self: Budget, *args: Any) -> None:
        begin(self, *args)
        world.budgets.append(self)

    with (
        mock.patch.object(CompiledSelector, "evaluate", counting),
        mock.patch.object(Budget, "__init__", beginning),
    ):
        yield world


@pytest.mark.parametrize("what", hostile_claims(0))
def test_a_cycle_works_for_a_claim_as_long_as_it_may(counted: _Counted, what: str) -> None:
    """Neither selectors nor the search take longer, and the first cycle does something."""
    counted.ask("c", hostile_claims(7)[what])
    for number in range(20):
        cost, n_steps, _ = counted.cycle()
        assert cost < 1 + _MORE
        assert n_steps < 1 + _MORE
        assert number or counted.costs


def test_what_is_left_bounds_a_single_evaluation(counted: _Counted) -> None:
    """A selector that may be evaluated once in a cycle is not begun with the rest of it, and is answered in the end."""
    # More than twice what a pod may spend in a cycle.
    expression = " && ".join(costly(4, number) for number in range(4))
    counted.ask("c", {"requests": [_of_all(expression)]})
    for _ in range(3 * N_DEVICES):
        cost, _, instructions = counted.cycle()
        assert cost < 1 + _MORE
        if any(isinstance(each, WriteReservation) for each in instructions):
            return
    raise AssertionError(instructions)


def _of_all(expression: str) -> Json:
    """Return a request for all devices of a node that the expression selects."""
    selectors = [{"cel": {"expression": expression}}]
    return {
        "name": "r",
        "exactly": {
            "deviceClassName": "gpu",
            "allocationMode": "ExactCount",
            "count": N_DEVICES,
            "selectors": selectors,
        },
    }
