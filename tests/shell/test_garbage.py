"""The garbage collector never holds up the loop for long: it looks at what is young, and rarely at what is old."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from scheduler.errors import SettingsError
from scheduler.serving.probes import Listening
from scheduler.settings.loading import default_settings
from scheduler.shell import upkeep
from scheduler.shell.app import Options, serve


class _Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_garbage_that_became_old_is_collected_where_there_is_little() -> None:
    ring = _Ring()
    gone = weakref.ref(ring)
    gc.collect(1)
    del ring
    gc.collect(1)
    assert gone() is not None, "it is old by now"
    upkeep.retire()
    assert gone() is None


def test_where_much_is_old_it_is_not_looked_through() -> None:
    upkeep.spare_old_objects()
    much = [[number] for number in range(100_000)]
    collected: list[int] = []

    def note(_phase: str, found: dict[str, int]) -> None:
        collected.append(found["generation"])

    gc.callbacks.append(note)
    try:
        upkeep.retire()
    finally:
        gc.callbacks.remove(note)
    assert 2 not in collected
    assert len(much) > len(gc.get_objects(generation=2))


def test_a_crowd_of_new_objects_sets_off_no_full_collection() -> None:
    upkeep.spare_old_objects()
    before = gc.get_stats()[2]["collections"]
    crowd = [[number] for number in range(500_000)]
    assert len(crowd) == 500_000
    assert gc.get_stats()[2]["collections"] == before


def test_young_objects_that_take_the_place_of_old_ones_do_not_gather() -> None:
    """The interpreter sees that there are no more than before, and would look at all of them at once some day."""
    upkeep.spare_old_objects()
    replaced = [[0] for _ in range(20_000)]
    gc.collect()
    gc.freeze()
    young = upkeep.Young()
    most = 0
    for number in range(len(replaced)):
        replaced[number] = [number]
        young.handled()
        if number % 100 == 0:
            most = max(most, len(gc.get_objects(generation=0)))
    assert most < 2_000
    assert len(gc.get_objects(generation=1)) < 10_000


@pytest.mark.asyncio
async def test_old_objects_are_spared_before_anything_is_awaited() -> None:
    """What was imported is 200,000 objects: a full collection of them at the start holds the loop for 50 ms."""
    options = Options(
        settings=default_settings(),
        election=None,
        master="nowhere",
        listening=Listening("127.0.0.1", 0),
        max_in_unschedulable_s=300.0,
        seed=None,
        verbosity=0,
        log_format="text",
    )
    with pytest.raises(SettingsError, match="--master"):
        await serve(options, {"HOME": "/nonexistent"})
    assert gc.get_threshold()[2] > 1_000_000
