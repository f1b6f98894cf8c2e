"""
A run of the suite in several processes at once (pytest-xdist: `pytest -n 3`), and what is judged when all have ended.

Tests marked `last` judge what the tests before them did, and no process knows what the others did. So no worker runs
them: each hands over what it has recorded when it ends, and the process that started the workers runs them then.
A run without workers knows nothing of this.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.accounts import Record

#: How many tests were left out for want of a real API server.
N_LEFT_OUT = pytest.StashKey[int]()
#: What is to be run when all workers have ended.
_LAST = pytest.StashKey[list[str]]()


def output_of(config: pytest.Config) -> dict[str, Any] | None:
    """What a worker hands over when it ends, of plain types; None where this process is no worker."""
    return getattr(config, "workeroutput", None)


def is_last(item: pytest.Item) -> bool:
    """Whether it judges the tests before it."""
    return item.get_closest_marker("last") is not None


def _record() -> Record:
    """Imported when it is asked for: where a part of the suite runs, nobody has to know the embedded cluster."""
    from tests.support.accounts import RECORD

    return RECORD


class Gathering:
    """The hooks of pytest, in workers and in the process that starts them."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """A worker names the tests that are not for it, and has the files first in which some take long."""
        output = output_of(config)
        if output is None:
            return
        output["n_left_out"] = config.stash.get(N_LEFT_OUT, 0)
        output["last"] = [item.nodeid for item in items if is_last(item)]
        items[:] = [item for item in items if not is_last(item)]
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker says what it has recorded."""
        output = output_of(session.config)
        if output is not None:
            output["record"] = _record().written()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """A worker has started, from which a record is expected."""
        _record().unheard.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended. One that crashed, or was given a wrong path, hands over nothing and stays unheard."""
        output = getattr(node, "workeroutput", {})
        if not {"record", "last"} <= output.keys():
            return
        _record().read(output["record"])
        _record().unheard.discard(node.gateway.id)
        node.config.stash[N_LEFT_OUT] = output["n_left_out"]
        node.config.stash[_LAST] = output["last"]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Any:
        """All workers have ended when the loop has: what is left is run here."""
        ran = yield
        last = session.config.stash.get(_LAST, [])
        if last:
            n_before = session.testscollected
            items = session.perform_collect([f"{session.config.rootpath}/{nodeid}" for nodeid in last])
            session.testscollected += n_before
            for item, following in zip_longest(items, items[1:]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return ran
