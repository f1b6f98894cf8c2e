"""A small cluster for the tests of preemption, and the seeds of the tests that compare with brute force."""

from typing import Final

import pytest

from tests.support.driving import Driver

#: Between the first blocks of two `--hypothesis-seed`: more than `--lives` asks for.
_MOST_BLOCKS: Final = 1_000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """
    Give a test of `drawn_seeds` its first blocks of seeds, one after another.

    With `--lives N` give it N other blocks: those of `--hypothesis-seed`.
    """
    marker = metafunc.definition.get_closest_marker("drawn_seeds")
    if marker is None:
        return
    size, n_blocks = marker.kwargs["size"], marker.kwargs["n_blocks"]
    first, n_wanted = 0, metafunc.config.option.lives
    if n_wanted is not None:
        first, n_blocks = int(metafunc.config.getoption("--hypothesis-seed") or 0) * _MOST_BLOCKS, n_wanted
    starts = [size * block for block in range(first, first + n_blocks)]
    metafunc.parametrize(
        "seeds", [pytest.param(range(start, start + size), id=f"from {start}") for start in starts]
    )


@pytest.fixture
def cluster(driver: Driver) -> Driver:
    """Return a machine with one node, for two pods of 1 cpu."""
    driver.node("n", allocatable={"cpu": "2"})
    return driver
