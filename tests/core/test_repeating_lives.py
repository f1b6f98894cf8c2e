"""
Whatever happens between pods that are decided in a row: each decision is the one that would be made anew.

conftest says so of every decision that was repeated, everywhere; here lives are drawn in which much happens. What is
made anew of the same counts is compared with the plain reference, which counts for itself, at the end of each life.

    pytest tests/core/test_repeating_lives.py --lives 3000

A life that fails is told with its seed and a short part of it that fails, the shortest where there is time to find it.
"""

from __future__ import annotations

import time
from random import Random

import pytest

from scheduler.core.decide import Placement
from scheduler.core.repeating import Repeating
from scheduler.framework.observer import Unobserved
from tests.chaos.shrinking import minimal
from tests.conformance.compare import decision_mismatches
from tests.conformance.product import ProductSubject
from tests.core.drawn_lives import Changed, Confirmed, Decided, Forgotten, Life, Step, Swept, drawn
from tests.core.drawn_objects import pod_of
from tests.plugins.lives import Applied, Deleted
from tests.reference.cluster import Cluster
from tests.support.build import Json

#: Lives in a run of the whole suite: about ten seconds.
_N_LIVES = 25

#: How long to look for the shortest part of a life that fails.
_SHRINK_S = 20.0

#: Templates that the reference is asked about at the end.
_N_REFERRED = 2


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("seed", range(metafunc.config.option.lives or _N_LIVES))


@pytest.mark.timeout(60 + _SHRINK_S)
def test_pods_in_a_row_are_decided_as_each_would_be_anew(seed: int) -> None:
    life = drawn(seed)
    try:
        _played(life, life.steps)
    except Exception as error:
        steps = _shortest(life, type(error))
        used = sorted({step.template for step in steps if isinstance(step, Decided)})
        lines = [f"{index}: {life.templates[index]}" for index in used] + [repr(step) for step in steps]
        error.add_note("\n".join([f"seed {seed}, {life.config}", *lines]))
        raise


def _shortest(life: Life, kind: type[Exception]) -> list[Step]:
    def fails(steps: list[Step]) -> bool:
        try:
            _played(life, steps)
        except kind:
            return True
        return False

    until_s = time.monotonic() + _SHRINK_S
    return minimal(life.steps, fails, is_over=lambda: time.monotonic() >= until_s)


def _played(life: Life, steps: list[Step]) -> None:
    row = _InARow(life)
    for step in steps:
        row.follow(step)
    row.compare_with_reference()


class _InARow:
    """A cluster, and who decides its pods."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._product = ProductSubject(life.config)
        self._repeating = Repeating(self._product.cluster.snapshot(), Random(1), Unobserved())
        #: What the API server has, pods by name alone.
        self._objects: dict[tuple[str, str], Json] = {}
        self._assumed: dict[str, Json] = {}

    def follow(self, step: Step) -> None:
        """The step is taken; nothing happens where what it is about is not there."""
        state = self._product.cluster.state
        match step:
            case Applied(made):
                self._tell(made)
            case Deleted(kind, namespace, name):
                self._objects.pop((kind, name), None)
                self._product.delete(kind, namespace, name)
            case Decided(name, template, is_assumed):
                self._decide(name, self._life.templates[template], is_assumed=is_assumed)
            case Confirmed(name) if name in self._assumed:
                self._tell(self._assumed.pop(name))
            case Forgotten(name) if self._assumed.pop(name, None) is not None:
                state.forget(name)
            case Changed(name, metadata, node) if ("Pod", name) in self._objects:
                made = pod_of(self._objects["Pod", name], name, node)
                made["metadata"] |= metadata
                self._tell(made)
            case Swept():
                state.sweep()

    def compare_with_reference(self) -> None:
        """What is decided anew by now is right, and so is what is counted."""
        assert self._product.differences() == []
        reference = Cluster()
        for made in (*self._objects.values(), *self._assumed.values()):
            reference.apply(made)
        for template in self._life.templates[:_N_REFERRED]:
            wanted = reference.evaluate(template, self._life.config)
            found = decision_mismatches(wanted, self._product.evaluate(template))
            # The reference knows no weights but those of the default profile.
            assert [str(one) for one in found if one.field != "total"] == []

    def _tell(self, made: Json) -> None:
        self._objects[made["kind"], made["metadata"]["name"]] = made
        self._product.apply(made)

    def _decide(self, name: str, template: Json, *, is_assumed: bool) -> None:
        pod = self._product.cluster.pod(pod_of(template, name))
        decision = self._repeating.decide(pod, self._product.profile)
        if isinstance(decision, Placement) and is_assumed:
            self._product.cluster.state.assume(pod, decision.node_name)
            self._assumed[name] = pod_of(template, name, decision.node_name)
