"""
Guest plugins: plugins of the user's, in files or packages, that run beside the built-in ones.

A guest keeps the contract of `interface`, but may be wrong about it. `GuardedPlugin` stands between: it gives the guest
a snapshot that cannot be written to, checks what the guest returns, and turns an exception of the guest into
`PluginFailed`, which fails the pod's cycle. A guest that failed never lets a pod through.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from traceback import extract_tb
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from scheduler.errors import PluginFailed
from scheduler.framework.events import ClusterEventWithHint, Hint, HintFn, always
from scheduler.framework.explaining import ExplainContext, PluginExplanation
from scheduler.framework.interface import (
    FeasibleNodes,
    NodeFilter,
    NodeScorer,
    PodContext,
    PreFiltered,
    PreFilterResult,
    PreScored,
)
from scheduler.framework.normalizing import MAX_NODE_SCORE
from scheduler.framework.status import SKIP, Code, NodeStatuses, Skip, Status, unresolvable, unschedulable
from scheduler.model.pods import Pod
from scheduler.state.arrays import Mask, Scores
from scheduler.state.read_only import ReadOnlySnapshot, read_only
from scheduler.state.snapshot import Snapshot

#: The method by which a plugin runs at an extension point.
METHOD_BY_POINT: Final = {"filter": "prefilter", "score": "prescore", "preEnqueue": "admits"}

_MESSAGE: Final = {
    "PreFilter": 'running PreFilter plugin "{}": ',
    "Filter": 'running "{}" filter plugin: ',
    "PreScore": 'running PreScore plugin "{}": ',
    "Score": 'running Score plugins: plugin "{}" failed with: ',
}
_Point = Literal["PreFilter", "Filter", "PreScore", "Score"]


@dataclass(frozen=True, slots=True)
class GuestPlugin:
    """
    A plugin of the user's that a configuration may name.

    Attributes:
        name: unique among all plugins.
        plugin_class: makes an instance for each profile.
        source: the file or the package that it comes from.
        version: its own version, '' if it has none.
        points: its extension points, as a configuration names them.
        default_weight: the weight of its scores where the configuration sets none; 0 if it does not score.
    """

    name: str
    plugin_class: type[Any]
    source: str
    version: str = ""
    points: tuple[str, ...] = ()
    default_weight: int = 0

    @property
    def args_type(self) -> type[Any] | None:
        """The type of its arguments, None if it takes none."""
        found: type[Any] | None = getattr(self.plugin_class, "args_type", None)
        return found

    @property
    def node_annotations(self) -> tuple[str, ...]:
        """The keys of the node annotations that it reads."""
        return tuple(getattr(self.plugin_class, "node_annotations", ()))


@dataclass(slots=True)
class GuardedPlugin:
    """
    A guest of one profile, as the framework runs it.

    Attributes:
        name: the guest's name.
        plugin: the guest.
        owner: identifies the guest, its profile and its arguments among the keys of derived values.
        shut_off: why the guest is not called any more, '' while it is.
    """

    name: str
    plugin: Any
    owner: Hashable
    shut_off: str = field(default="")

    def __post_init__(self) -> None:
        """Raise TypeError for a label that is no text, and whatever the guest raises when asked for its events."""
        label = getattr(self.plugin, "only_pods_with_label", None)
        if not isinstance(label, str | None):
            raise TypeError(f"only_pods_with_label is {label!r}, expected a label key")
        self.events_to_register()

    def concerns(self, pod: Pod) -> bool:
        """Return whether the guest has to be asked about the pod: it may name a label without which it has not."""
        label = getattr(self.plugin, "only_pods_with_label", None)
        return label is None or label in pod.labels

    # PreEnqueue.

    def admits(self, pod: Pod) -> bool:
        """
        Return whether the pod may enter the active queue.

        A pod of which the guest does not say so enters: `GuestAdmission` then fails its cycle, with a message.
        """
        if self.shut_off or not self.concerns(pod):
            return True
        try:
            return bool(self.plugin.admits(pod))
        except Exception:  # noqa: BLE001 - a guest may raise anything; it raises again in the pod's cycle
            return True

    # PreFilter and Filter.

    def prefilter(self, context: PodContext, snapshot: Snapshot) -> PreFiltered:
        """Return what the guest returns, checked. Raises PluginFailed."""
        if not self.concerns(context.pod):
            return SKIP
        if self.shut_off:
            return self.refusal
        with self.failing_at("PreFilter"):
            result = self.plugin.prefilter(_read_only(context), ReadOnlySnapshot.of(snapshot, self.owner))
            if isinstance(result, Skip):
                return SKIP
            if isinstance(result, Status):
                return SKIP if result.code is Code.SUCCESS else _checked(result)
            if isinstance(result, PreFilterResult):
                node_filter = _GuardedFilter(self, result.node_filter, snapshot.n_rows)
                return PreFilterResult(node_filter, frozenset(result.node_names))
            if not callable(getattr(result, "mask", None)):
                raise TypeError(
                    f"prefilter returned {_shown(result)}, expected a RuleFilter, a status or SKIP"
                )
        return _GuardedFilter(self, result, snapshot.n_rows)

    @property
    def refusal(self) -> Status:
        """The status of a pod that would need the guest, which is shut off."""
        return unresolvable(f"plugin {self.name} is shut off until the scheduler restarts: {self.shut_off}")

    # PreScore and Score.

    def prescore(self, context: PodContext, snapshot: Snapshot, feasible: FeasibleNodes) -> PreScored:
        """Return what the guest returns, checked; SKIP if it is shut off. Raises PluginFailed."""
        if self.shut_off or not self.concerns(context.pod):
            return SKIP
        with self.failing_at("PreScore"):
            result = self.plugin.prescore(
                _read_only(context),
                ReadOnlySnapshot.of(snapshot, self.owner),
                FeasibleNodes(read_only(feasible.mask)),
            )
            if isinstance(result, Status):
                return _checked(result)
            if isinstance(result, Skip):
                return SKIP
            if not callable(getattr(result, "raw", None)):
                raise TypeError(f"prescore returned {_shown(result)}, expected FinalScores, a status or SKIP")
        return _GuardedScorer(self, result, feasible)

    # Events and explanations.

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the guest's events. A hint that raises counts as QUEUE. Raises whatever the guest raises."""
        if not hasattr(self.plugin, "events_to_register"):
            return ()
        return [_guarded_event(one) for one in self.plugin.events_to_register()]

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Return the guest's explanation of its refusals; an empty one if it has none or raises."""
        if self.shut_off or not hasattr(self.plugin, "explain"):
            return PluginExplanation()
        try:
            found = self.plugin.explain(context.read_only(self.owner))
        except Exception:  # noqa: BLE001 - an explanation is no reason to fail
            return PluginExplanation()
        return found if isinstance(found, PluginExplanation) else PluginExplanation()

    @contextmanager
    def failing_at(self, point: _Point) -> Iterator[None]:
        """Turn an exception of the guest into PluginFailed."""
        try:
            yield
        except Exception as error:
            message = _MESSAGE[point].format(self.name) + described(error, type(self.plugin))
            raise PluginFailed(self.name, point, message) from error


class GuestAdmission:
    """Repeats a guest's PreEnqueue at the beginning of the cycle, where a failure has a message."""

    def __init__(self, guest: GuardedPlugin) -> None:
        self.name = guest.name
        self._guest = guest

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the guest's events."""
        return self._guest.events_to_register()

    def prefilter(self, context: PodContext, snapshot: Snapshot) -> PreFiltered:
        """Skip an admitted pod. Raises PluginFailed."""
        del snapshot
        guest = self._guest
        if not guest.concerns(context.pod):
            return SKIP
        if guest.shut_off:
            return guest.refusal
        with guest.failing_at("PreFilter"):
            admitted = guest.plugin.admits(context.pod)
        return SKIP if admitted else unresolvable(f"pod is not admitted by plugin {self.name}")


class _GuardedFilter:
    """A guest's filter: its mask has a value for each row, and every refused row has a reason."""

    __slots__ = ("_guest", "_mask", "_n_rows", "_node_filter")

    #: No pod is evicted for what it refuses.
    trial = None

    def __init__(self, guest: GuardedPlugin, node_filter: NodeFilter, n_rows: int) -> None:
        self._guest, self._node_filter, self._n_rows = guest, node_filter, n_rows
        self._mask: Mask | None = None

    def mask(self) -> Mask:
        if self._mask is None:
            with self._guest.failing_at("Filter"):
                mask = self._node_filter.mask()
                if (
                    not isinstance(mask, np.ndarray)
                    or mask.dtype != np.bool_
                    or mask.shape != (self._n_rows,)
                ):
                    raise TypeError(f"mask is {_shown(mask)}, expected bool of shape ({self._n_rows},)")
            self._mask = mask
        return self._mask

    def statuses(self) -> NodeStatuses:
        mask = self.mask()
        with self._guest.failing_at("Filter"):
            found = self._node_filter.statuses()
            codes = np.where(mask, 0, found.codes)
            if codes.min(initial=0) < 0 or codes.max(initial=0) > len(found.statuses):
                raise ValueError(f"codes up to {codes.max()} for {len(found.statuses)} statuses")
            nameless = (codes == 0) & ~mask
            silent = [not _checked(status).reasons for status in found.statuses]
        if not nameless.any() and not any(silent):
            return found
        reason = unschedulable(f"node(s) were refused by plugin {self._guest.name}")
        statuses = [
            reason if is_silent else one for one, is_silent in zip(found.statuses, silent, strict=True)
        ]
        return NodeStatuses(np.where(nameless, len(statuses) + 1, codes), [*statuses, reason])


class _GuardedScorer:
    """A guest's scorer: its scores are integers from 0 to 100 on every feasible row."""

    __slots__ = ("_feasible", "_guest", "_scorer")

    def __init__(self, guest: GuardedPlugin, scorer: NodeScorer[Any], feasible: FeasibleNodes) -> None:
        self._guest, self._scorer, self._feasible = guest, scorer, feasible

    def raw(self) -> Any:  # noqa: ANN401 - in a form of the guest's choice
        with self._guest.failing_at("Score"):
            return self._scorer.raw()

    def normalized(self, raw: Any) -> Scores:  # noqa: ANN401 - as above
        feasible = self._feasible
        with self._guest.failing_at("Score"):
            scores = self._scorer.normalized(raw)
            shape = feasible.mask.shape
            if not isinstance(scores, np.ndarray) or scores.dtype.kind not in "iu" or scores.shape != shape:
                raise TypeError(f"scores are {_shown(scores)}, expected integers of shape {shape}")
            for score in (feasible.lowest(scores), feasible.highest(scores)):
                if not 0 <= score <= MAX_NODE_SCORE:
                    raise ValueError(f"score {score}, expected 0 to {MAX_NODE_SCORE}")
            return scores.astype(np.int16, copy=False)


def described(error: BaseException, plugin: type[Any]) -> str:
    """Return the error in one line, with the place in the plugin's own file: `KeyError: 'team' (my.py, line 14)`."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    files = _files_of(plugin)
    lines = [frame for frame in extract_tb(error.__traceback__) if frame.filename in files]
    return f"{text} ({PurePath(lines[-1].filename).name}, line {lines[-1].lineno})" if lines else text


def _files_of(plugin: type[Any]) -> set[str]:
    """Return the files of the plugin's class and of its methods, without those of this package."""
    codes = (getattr(method, "__code__", None) for method in vars(plugin).values())
    return {code.co_filename for code in codes if code is not None}


def _read_only(context: PodContext) -> PodContext:
    pod = context.pod
    return PodContext(replace(pod, labels=MappingProxyType(pod.labels)), context.label_set)


def _checked(status: Status) -> Status:
    """Return the status. Raises TypeError unless its reasons are texts."""
    if not all(isinstance(reason, str) for reason in status.reasons):
        raise TypeError(f"a status has reasons {status.reasons!r}, expected texts")
    return status


def _guarded_event(event: ClusterEventWithHint) -> ClusterEventWithHint:
    """Return the event with a hint that does not raise. Raises TypeError if it is none."""
    if not isinstance(event, ClusterEventWithHint):
        raise TypeError(f"events_to_register returned {type(event).__name__}, expected ClusterEventWithHint")
    if event.hint is None:
        return event
    # A hint of the user's may read any field of a pod: its result for one pod is used for equal pods only.
    return replace(event, hint=_guarded_hint(event.hint), reads_labels=always)


def _guarded_hint(hint: HintFn) -> Callable[[Any, Any, Any], Hint]:
    def guarded(pod: Any, old: Any, new: Any) -> Hint:  # noqa: ANN401 - as HintFn
        try:
            found = hint(pod, old, new)
        except Exception:  # noqa: BLE001 - in doubt the pod is tried
            return Hint.QUEUE
        return found if isinstance(found, Hint) else Hint.QUEUE

    return guarded


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return "None" if value is None else f"of type {type(value).__name__}"
