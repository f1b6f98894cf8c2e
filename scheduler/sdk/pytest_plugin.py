"""
The fixtures of `scheduler.sdk.testing`, which pytest finds by itself (entry point `pytest11`).

Outside of that package, which it imports only for a test that asks for it: every run of pytest in the environment
imports this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from scheduler.sdk.testing.devcluster import DevClusterFixture

pytest.register_assert_rewrite("scheduler.sdk.testing.plugin_tests")


@pytest.fixture
def devcluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevClusterFixture]:
    """Run an embedded API server without nodes, and on request a scheduler, as processes of their own."""
    from scheduler.sdk.testing.devcluster import DevClusterFixture

    with DevClusterFixture(tmp_path_factory.mktemp("devcluster")) as cluster:
        yield cluster
