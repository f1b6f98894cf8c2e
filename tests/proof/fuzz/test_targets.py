"""Every target stands the corpus and some mutants of it; `python -m tests.proof.fuzz` goes on where this ends."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.proof.fuzz.__main__ import NAMES
from tests.proof.fuzz.corpus import seeds_of
from tests.proof.fuzz.mutating import drawn
from tests.proof.fuzz.targets import PROPERTIES, TARGETS

_N_MUTANTS = 60


@pytest.mark.parametrize("name", sorted(TARGETS.keys() - PROPERTIES.keys()))
def test_a_target_stands_mutants_of_its_seeds(name: str) -> None:
    seeds = seeds_of(name)
    assert seeds
    for data in islice(drawn(seeds, 39), len(seeds) + _N_MUTANTS):
        TARGETS[name](data)


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_takes_a_seed_as_an_example(name: str) -> None:
    """The properties are tried where they stand."""
    assert any(PROPERTIES[name](data) is not None for data in seeds_of(name))


def test_every_target_has_a_name() -> None:
    assert tuple(TARGETS) == NAMES


def test_the_same_seed_draws_the_same_inputs() -> None:
    first, second = (list(islice(drawn([b"a: [1, 2]"], 7), 50)) for _ in range(2))
    assert first == second
    assert len(set(first)) > 30
