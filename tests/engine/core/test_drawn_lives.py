"""
Random lives of clusters: decisions are those of a state that has derived nothing yet.

At the end of each life, decisions are compared with the plain reference, which counts for itself.

    pytest tests/engine/core/test_drawn_lives.py --lives 3000

The message of a life that fails has its seed and a part of it that fails: the shortest, if there is time to find it.
"""

from __future__ import annotations

import time
from random import Random

import pytest

from scheduler.engine.core.decide import ScheduleResult, decide
from scheduler.engine.framework.observer import Unobserved
from tests.conformance.compare import decision_mismatches
from tests.conformance.product import ProductSubject
from tests.engine.core.drawn_lives import Changed, Confirmed, Decided, Forgotten, Life, Step, Swept, drawn
from tests.engine.core.drawn_objects import pod_of
from tests.engine.core.fresh import assert_as_if_fresh
from tests.engine.plugins.lives import Applied, Deleted
from tests.proof.chaos.shrinking import minimal
from tests.reference.cluster import Cluster
from tests.support.build import Json

#: Lives in a run of the whole suite: about twenty seconds.
_N_LIVES = 25

#: One decision in this number is compared, after as many changes.
_EACH_COMPARED = 5

#: Seconds to look for the shortest part of a life that fails.
_SHRINK_S = 20.0

#: Templates that the reference is asked about at the end.
_N_REFERRED = 2


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("seed", range(metafunc.config.option.lives or _N_LIVES))


@pytest.mark.timeout(60 + _SHRINK_S)
def test_pods_are_decided_as_on_a_fresh_state(seed: int) -> None:
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
    play = _Play(life)
    for step in steps:
        play.follow(step)
    play.compare_with_reference()


class _Play:
    """A cluster whose pods are decided one after the other."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._product = ProductSubject(life.config)
        self._rng = Random(1)
        self._n_decided = 0
        #: What the API server has, by kind and name; names of pods are unique.
        self._objects: dict[tuple[str, str], Json] = {}
        self._assumed: dict[str, Json] = {}

    def follow(self, step: Step) -> None:
        """Take the step; it does nothing if what it is about is not there."""
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
        """Compare counts with a recount, and some decisions with the reference's."""
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
        product = self._product
        pod = product.cluster.pod(pod_of(template, name))
        decision = decide(pod, product.cluster.view(), product.profile, self._rng, Unobserved())
        self._n_decided += 1
        if self._n_decided % _EACH_COMPARED == 0:
            assert_as_if_fresh(pod, product.cluster.state, product.profile, decision)
        if isinstance(decision, ScheduleResult) and is_assumed:
            product.cluster.state.assume(pod, decision.node_name)
            self._assumed[name] = pod_of(template, name, decision.node_name)
