"""Recorded lives of clusters with devices: decisions, writes, events and messages of the product."""

from pathlib import Path

import pytest

from tests.conformance.devices import life_answers
from tests.conformance.traces import DeviceLife, read_lives


@pytest.fixture(scope="module")
def lives() -> list[DeviceLife]:
    """All of them, of 94 MB: read by the process alone that plays some, and no longer than it does."""
    return read_lives(Path(__file__).parent.parent / "data" / "dra.jsonl.gz")


@pytest.mark.parametrize("first", range(5))
def test_the_product_lives_as_recorded(lives: list[DeviceLife], first: int) -> None:
    found = [
        f"{place} {mismatch}"
        for life in lives[first::5]
        for place, mismatches in life_answers(life)
        for mismatch in mismatches
    ]
    assert found == []


def test_a_life_that_is_said_to_differ_and_does_not_is_a_mismatch(lives: list[DeviceLife]) -> None:
    life = next(life for life in lives if life.category == "basic")
    said = DeviceLife(life.name, life.category, life.ops, life.expected, quirk=True)
    *_, (_, last) = life_answers(said)
    assert [mismatch.field for mismatch in last] == ["quirk"]
