"""A running machine for the tests of the engine."""

from collections.abc import Iterator

import pytest

from tests.support.driving import Driver


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Yield a machine that knows nothing yet; its counts are compared with a recount at the end."""
    made = Driver()
    yield made
    made.audit()
