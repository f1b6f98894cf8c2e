"""The garbage collector never blocks the loop for long."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from scheduler.daemon.loop import upkeep as garbage_collection
from scheduler.daemon.loop.app import Options, serve
from scheduler.daemon.port.status_server import ServingOptions
from scheduler.daemon.settings.loading import default_settings
from scheduler.errors import SettingsError
from scheduler.tools.page.cluster_page import ClusterPage


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


def test_old_garbage_is_collected_if_there_is_little() -> None:
    ring = _Ring()
    gone = weakref.ref(ring)
    gc.collect(1)
    del ring
    gc.collect(1)
    # Asserted at the end: pytest's explanation of an assertion that held keeps what it compared, here the ring.
    is_old = gone() is not None
    garbage_collection.freeze_old_objects()
    assert is_old
    assert gone() is None


def test_many_old_objects_are_frozen_without_a_collection() -> None:
    garbage_collection.disable_full_collections()
    much = [[number] for number in range(100_000)]
    collected: list[int] = []

    def note(_phase: str, found: dict[str, int]) -> None:
        collected.append(found["generation"])

    gc.callbacks.append(note)
    try:
        garbage_collection.freeze_old_objects()
    finally:
        gc.callbacks.remove(note)
    assert 2 not in collected
    assert len(much) > len(gc.get_objects(generation=2))


def test_many_new_objects_start_no_full_collection() -> None:
    garbage_collection.disable_full_collections()
    before = gc.get_stats()[2]["collections"]
    crowd = [[number] for number in range(500_000)]
    assert len(crowd) == 500_000
    assert gc.get_stats()[2]["collections"] == before


async def test_full_collections_are_disabled_before_anything_is_awaited() -> None:
    """A full collection of the 200,000 imported objects takes 50 ms."""
    options = Options(
        settings=default_settings(),
        election=None,
        master="nowhere",
        serving=ServingOptions("127.0.0.1", 0),
        max_in_unschedulable_s=300.0,
        seed=None,
        verbosity=0,
        log_format="text",
    )
    with pytest.raises(SettingsError, match="--master"):
        await serve(options, {"HOME": "/nonexistent"}, ClusterPage)
    assert gc.get_threshold()[2] > 1_000_000
