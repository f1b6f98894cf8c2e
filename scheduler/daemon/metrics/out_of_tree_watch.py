"""Watches out-of-tree plugins: one that fails or overruns again and again is to be shut off for its profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import PluginFailing

#: The longest call of an out-of-tree plugin at up to 5,000 nodes, and as much more as there are more nodes. The first
#: call for a kind of pod may take this long; the event loop is held meanwhile.
LONGEST_CALL_S: Final = 0.1
_N_NODES: Final = 5000
#: Calls in a row, at one extension point, that fail before an out-of-tree plugin is shut off. A pod is tried again
#: after a backoff of up to 10 s, so one pod alone needs a minute to bring this about.
MOST_FAILURES_IN_A_ROW: Final = 10


_SCORING: Final = ("PreScore", "Score", "ScoreExtensionNormalize")


class OutOfTreeCall(NamedTuple):
    """One call of an out-of-tree plugin. `n_nodes`: that it was about, 0 outside of a cycle."""

    profile: str
    plugin: str
    point: str
    pod: Pod
    n_nodes: int = 0


class OutOfTreeWatch:
    """
    Counts failures, and reports an out-of-tree plugin once it fails too often in a row.

    `count` is called with plugin, profile and "error" or "overrun" for each failure; `on_failing` once per profile and
    plugin, and once more where first only its scores failed.
    """

    def __init__(
        self, count: Callable[[str, str, str], None], on_failing: Callable[[PluginFailing], None]
    ) -> None:
        self._count = count
        self._on_failing = on_failing
        #: Failures in a row by profile, plugin and extension point.
        self._n_in_a_row: Counter[tuple[str, str, str]] = Counter()
        self._reported: set[tuple[str, str, bool]] = set()

    def judge(self, call: OutOfTreeCall, elapsed_s: float, failure: str) -> None:
        """Judge a call that has just ended; `failure` is '' if it did not fail. 0.5 µs."""
        key = call[:3]
        longest_s = LONGEST_CALL_S * max(1.0, call.n_nodes / _N_NODES)
        if not failure and elapsed_s <= longest_s:
            if self._n_in_a_row:
                self._n_in_a_row.pop(key, None)
            return
        self._count(call.plugin, call.profile, "error" if failure else "overrun")
        self._n_in_a_row[key] += 1
        plugin = (call.profile, call.plugin, call.point in _SCORING)
        if self._n_in_a_row[key] < MOST_FAILURES_IN_A_ROW or plugin in self._reported:
            return
        self._reported.add(plugin)
        last = failure or f"{call.point} took {elapsed_s:.3f} s, more than {longest_s:.1f} s"
        why = f"{MOST_FAILURES_IN_A_ROW} calls in a row failed, the last one: {last}"
        self._on_failing(PluginFailing(call.profile, call.plugin, why, call.pod, call.point in _SCORING))
