"""A search draws the same numbers in every version and on every machine: recorded decisions are played again."""

from __future__ import annotations

from scheduler.engine.core.assumed_places import SplitMix64


def test_the_numbers_are_those_of_splitmix64() -> None:
    """From a plain implementation, begun at the digest of the identity, 0xa75d497bdad1730f."""
    rng = SplitMix64("group moves")
    numbers = [11664878396246414885, 5347674340970503118, 11567275386891502166]
    assert [rng.randrange(1 << 64) for _ in numbers] == numbers


def test_numbers_are_below_the_stop() -> None:
    rng = SplitMix64("p 1")
    assert {rng.randrange(3) for _ in range(100)} == {0, 1, 2}
