"""
A run of the suite in several processes (pytest-xdist: `pytest -n 4`), and the tests that run when all have ended.

Tests marked `last` judge what the tests before them recorded. Each worker sees only its own tests, so no worker runs
them: it sends its record when it ends, and the process that started the workers then runs them with all records.
Without workers these hooks change nothing.
"""

from __future__ import annotations

import resource
import sys
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from tests.support.accounts import Record

#: How many tests were left out for want of a real API server.
N_LEFT_OUT = pytest.StashKey[int]()
#: The most memory that a worker had, or that this process has where there are none.
PEAK_BYTES = pytest.StashKey[int]()
#: What is to be run when all workers have ended.
_LAST = pytest.StashKey[list[str]]()

#: Of `ru_maxrss`.
_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1024


def output_of(config: pytest.Config) -> dict[str, Any] | None:
    """Return the dict, of plain types, that a worker sends when it ends; None in a process that is no worker."""
    return getattr(config, "workeroutput", None)


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT_BYTES


def is_last(item: pytest.Item) -> bool:
    """Return whether the test is marked `last`: it judges the tests before it."""
    return item.get_closest_marker("last") is not None


def _record() -> Record:
    """Return the record. Imported only here, so that a run of a few tests need not load the embedded cluster."""
    from tests.support.accounts import RECORD

    return RECORD


class Gathering:
    """The hooks of pytest, in workers and in the process that starts them."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """In a worker, take out the tests marked `last`, report them, and sort files with slow tests first."""
        output = output_of(config)
        if output is None:
            return
        output["n_left_out"] = config.stash.get(N_LEFT_OUT, 0)
        output["last"] = [item.nodeid for item in items if is_last(item)]
        items[:] = [item for item in items if not is_last(item)]
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """In a worker, send the record and the most memory that it had."""
        output = output_of(session.config)
        if output is not None:
            output["record"] = _record().entries()
            output["peak_bytes"] = peak_bytes()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """Note a worker that has started, from which a record is expected."""
        _record().missing.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Read what a worker sent. One that crashed, or got a wrong path, sends nothing and stays in `missing`."""
        output = getattr(node, "workeroutput", {})
        if not {"record", "last"} <= output.keys():
            return
        _record().extend(output["record"])
        _record().missing.discard(node.gateway.id)
        stash = node.config.stash
        stash[PEAK_BYTES] = max(stash.get(PEAK_BYTES, 0), output["peak_bytes"])
        stash[N_LEFT_OUT] = output["n_left_out"]
        stash[_LAST] = output["last"]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Any:
        """Run the tests marked `last` after the loop, which ends when all workers have."""
        ran = yield
        last = session.config.stash.get(_LAST, [])
        if last:
            n_before = session.testscollected
            items = session.perform_collect([f"{session.config.rootpath}/{nodeid}" for nodeid in last])
            session.testscollected += n_before
            # syrupy takes the tests that workers collected only where this process collected none, and has no public
            # way to say so; without them it would warn of each test that ran, and find no unused snapshot.
            session.config._syrupy._collected_items.clear()  # type: ignore[attr-defined]
            for item, following in zip_longest(items, items[1:]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return ran
