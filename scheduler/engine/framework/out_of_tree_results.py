"""
What out-of-tree plugins return, checked: filters, scorers, statuses and explanations.

An exception of the plugin becomes PluginFailed, whose message names the plugin, its file and the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePath
from traceback import extract_tb
from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np

from scheduler.engine.framework.explaining import PluginExplanation, Repair, Where
from scheduler.engine.framework.interface import (
    MAX_NODE_SCORE,
    FeasibleNodes,
    NodeFilter,
    NodeScorer,
    PreFilterExtensions,
    RuleFilter,
)
from scheduler.engine.framework.status import NodeStatuses, Status, unschedulable
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Mask, Rows, Scores
from scheduler.engine.state.rule_guard import running_rule
from scheduler.errors import PluginFailed

_MESSAGE: Final = {
    "PreFilter": 'running PreFilter plugin "{}": ',
    "Filter": 'running "{}" filter plugin: ',
    "PreScore": 'running PreScore plugin "{}": ',
    "Score": 'running Score plugins: plugin "{}" failed with: ',
}
Point = Literal["PreFilter", "Filter", "PreScore", "Score"]
_T = TypeVar("_T")


class PluginIdentity(NamedTuple):
    """The plugin that a failure names."""

    name: str
    plugin_class: type[Any]

    @contextmanager
    def failing_at(self, point: Point) -> Iterator[None]:
        """Turn any exception of the plugin into PluginFailed, even SystemExit; keep it from changing the state."""
        try:
            with running_rule():
                yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            message = _MESSAGE[point].format(self.name) + described(error, self.plugin_class)
            raise PluginFailed(self.name, point, message) from error

    def refusing(self, status: Status) -> Status:
        """Return the status, with a reason if it has none. Raises TypeError if it is no refusal with texts."""
        if not isinstance(status, Status):
            raise TypeError(f"found {shown(status)}, expected a status")
        if not status.code.rejects:
            raise TypeError(
                f"found a status {status.code.value}, expected a refusal such as unschedulable(...)"
            )
        if not all(isinstance(reason, str) for reason in status.reasons):
            raise TypeError(f"a status has reasons {status.reasons!r}, expected texts")
        if any(status.reasons):
            return status
        return replace(status, reasons=(f"node(s) were refused by plugin {self.name}",))

    def explained(self, call: Callable[[], _T], otherwise: Callable[[str], _T]) -> _T:
        """Return what the plugin's call returns; if it fails, `otherwise` of the text that says so."""
        try:
            with running_rule():
                return call()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - code of the user's may raise anything
            return otherwise(f"plugin {self.name} does not explain it: {described(error, self.plugin_class)}")


class GuardedFilter(NodeFilter):
    """An out-of-tree plugin's filter: its mask has a value for each row, and every refused row has a reason."""

    __slots__ = ("_identity", "_mask", "_n_rows", "_node_filter")

    def __init__(self, identity: PluginIdentity, node_filter: NodeFilter, n_rows: int) -> None:
        self._identity, self._node_filter, self._n_rows = identity, node_filter, n_rows
        self._mask: Mask | None = None

    def mask(self) -> Mask:
        """Return the plugin's mask. Raises PluginFailed if it is no mask, or if a rule's status is no refusal."""
        if self._mask is None:
            with self._identity.failing_at("Filter"):
                mask = self._node_filter.mask()
                if (
                    not isinstance(mask, np.ndarray)
                    or mask.dtype != np.bool_
                    or mask.shape != (self._n_rows,)
                ):
                    raise TypeError(f"mask is {shown(mask)}, expected bool of shape ({self._n_rows},)")
                if isinstance(self._node_filter, RuleFilter):
                    for _, status in self._node_filter.rules:
                        self._identity.refusing(status)
            self._mask = mask
        return self._mask

    def statuses(self) -> NodeStatuses:
        """Return the plugin's reasons. If it fails to, the failure is the reason of all nodes that it refuses."""
        mask = self.mask()
        try:
            with self._identity.failing_at("Filter"):
                return self._checked(mask, self._node_filter.statuses())
        except PluginFailed as failure:
            return NodeStatuses.first_broken([(mask, unschedulable(str(failure)))], self._n_rows)

    def _checked(self, mask: Mask, found: NodeStatuses) -> NodeStatuses:
        codes = np.asarray(found.codes)
        if codes.dtype.kind not in "iu" or codes.shape != mask.shape:
            raise TypeError(f"codes are {shown(codes)}, expected integers of shape {mask.shape}")
        codes = np.where(mask, 0, codes)
        if codes.min(initial=0) < 0 or codes.max(initial=0) > len(found.statuses):
            raise ValueError(f"codes up to {codes.max()} for {len(found.statuses)} statuses")
        statuses = [self._identity.refusing(status) for status in found.statuses]
        nameless = (codes == 0) & ~mask
        if nameless.any():
            statuses.append(self._identity.refusing(unschedulable()))
            codes = np.where(nameless, len(statuses), codes)
        return NodeStatuses(codes, statuses)

    @property
    def trial(self) -> Callable[[int], PreFilterExtensions] | None:
        """Return the plugin's answer at a row while pods come and go there; None if it has none."""
        return None if getattr(self._node_filter, "trial", None) is None else self._tried

    def _tried(self, row: int) -> PreFilterExtensions:
        with self._identity.failing_at("Filter"):
            trial: Any = self._node_filter.trial
            return _GuardedTrial(self._identity, trial(row))


class _GuardedTrial(PreFilterExtensions):
    """An out-of-tree plugin's answer at one row while pods come and go there."""

    __slots__ = ("_identity", "_trial")

    def __init__(self, identity: PluginIdentity, trial: Any) -> None:  # noqa: ANN401 - of the user's
        self._identity, self._trial = identity, trial

    def count(self, pod: Pod, delta: int) -> None:
        with self._identity.failing_at("Filter"):
            (self._trial.add_pod if delta > 0 else self._trial.remove_pod)(pod)

    def refusal(self) -> Status | None:
        with self._identity.failing_at("Filter"):
            status = self._trial.refusal()
            return None if status is None else self._identity.refusing(status)


class GuardedScorer:
    """An out-of-tree plugin's scorer: its scores are integers from 0 to 100 on every feasible row."""

    __slots__ = ("_feasible", "_identity", "_scorer")

    def __init__(self, identity: PluginIdentity, scorer: NodeScorer[Any], feasible: FeasibleNodes) -> None:
        self._identity, self._scorer, self._feasible = identity, scorer, feasible

    def raw(self) -> Any:  # noqa: ANN401 - in a form of the plugin's choice
        """Return what the plugin returns. Raises PluginFailed."""
        with self._identity.failing_at("Score"):
            return self._scorer.raw()

    def normalized(self, raw: Any) -> Scores:  # noqa: ANN401 - as above
        """Return the plugin's scores, checked. Raises PluginFailed."""
        feasible = self._feasible
        with self._identity.failing_at("Score"):
            scores = self._scorer.normalized(raw)
            shape = feasible.mask.shape
            if not isinstance(scores, np.ndarray) or scores.dtype.kind not in "iu" or scores.shape != shape:
                raise TypeError(f"scores are {shown(scores)}, expected integers of shape {shape}")
            for score in (feasible.lowest(scores), feasible.highest(scores)):
                if not 0 <= score <= MAX_NODE_SCORE:
                    raise ValueError(f"score {score}, expected 0 to {MAX_NODE_SCORE}")
            return scores.astype(np.int16, copy=False)


def guarded_explanation(identity: PluginIdentity, found: PluginExplanation) -> PluginExplanation:
    """Return the explanation with parts that do not raise later. Raises whatever the plugin raises now."""
    if not isinstance(found, PluginExplanation):
        raise TypeError(f"explain returned {shown(found)}, expected a PluginExplanation")

    def said_of(rows: Rows) -> Sequence[str | Where]:
        by_row = zip(rows.tolist(), found.where(rows) if found.where else (), strict=True)
        return [as_said(said) for _, said in by_row]

    def where(rows: Rows) -> Sequence[str | Where]:
        return identity.explained(lambda: said_of(rows), lambda text: [text] * len(rows))

    proposals = None if found.proposals is None else list(found.proposals())
    repair = found.repair
    return replace(
        found,
        where=where if found.where else None,
        proposals=None if proposals is None else lambda: proposals,
        repair=repair
        and Repair(
            # A proposal that is missing does no harm.
            lambda row: identity.explained(lambda: repair.alternatives(row), lambda _: ()),
            lambda rows: identity.explained(
                lambda: repair.effort(rows), lambda _: np.full(len(rows), np.inf)
            ),
        ),
    )


def as_said(said: object) -> str | Where:
    """Return what a plugin says of nodes: a `Where`, or a text."""
    return said if isinstance(said, Where) else str(said)


def described(error: BaseException, plugin: type[Any]) -> str:
    """Return the error in one line, with the place in the plugin's own file: `KeyError: 'team' (my.py, line 14)`."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    codes = (getattr(method, "__code__", None) for method in vars(plugin).values())
    files = {code.co_filename for code in codes if code is not None}
    lines = [frame for frame in extract_tb(error.__traceback__) if frame.filename in files]
    return f"{text} ({PurePath(lines[-1].filename).name}, line {lines[-1].lineno})" if lines else text


def shown(value: object) -> str:
    """Return what the value is, in words."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return "None" if value is None else f"of type {type(value).__name__}"
