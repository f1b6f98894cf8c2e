"""A small cluster for the tests of preemption."""

import pytest

from tests.support.driving import Driver


@pytest.fixture
def cluster(driver: Driver) -> Driver:
    """Return a machine with one node, for two pods of 1 cpu."""
    driver.node("n", allocatable={"cpu": "2"})
    return driver
