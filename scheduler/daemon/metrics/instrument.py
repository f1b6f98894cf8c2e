"""
Times and counts plugin calls; plugins have no code for it.

Every cycle is timed per extension point. In one cycle of ten the profile runs with every plugin wrapped, which times
single calls too. Differences: a plugin's Filter or Score is one call for all nodes, so there is one observation per
cycle where upstream has one per node; Filter's status is always Success, since its mask says which nodes are refused;
timings are observed at once, without a buffer that can overflow.

Source: framework/runtime/{framework,instrumented_plugins,metrics_recorder}.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final, Generic, TypeVar

from scheduler.daemon.metrics.series import Histogram, HistogramSeries
from scheduler.engine.framework.interface import (
    FeasibleNodes,
    FilterPlugin,
    NodeFilter,
    NodeScorer,
    PodContext,
    PreFiltered,
    PreFilterResult,
    PreScored,
    ScorePlugin,
    TrialAt,
)
from scheduler.engine.framework.observer import Observer
from scheduler.engine.framework.profile import Profile
from scheduler.engine.framework.room import RoomFilter
from scheduler.engine.framework.status import Code, NodeStatuses, Skip, Status
from scheduler.engine.state.arrays import Mask, Scores
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import PluginFailed

_Raw = TypeVar("_Raw")
_T = TypeVar("_T")

#: Upstream's `status` label. A global is read ten times as fast as `Code.value`.
_SUCCESS: Final = Code.SUCCESS.value
#: Upstream's `extension_point` label of NormalizeScore.
_NORMALIZE: Final = "ScoreExtensionNormalize"

#: The longest call of an out-of-tree plugin at up to 5,000 nodes, and as much more as there are more nodes. The event
#: loop is held meanwhile.
LONGEST_CALL_S: Final = 0.1
_N_NODES: Final = 5000
#: Called with plugin, profile and "error" or "overrun" for each call of an out-of-tree plugin that fails.
CountFailure = Callable[[str, str, str], None]


def _success(_result: object) -> str:
    return _SUCCESS


class CycleObserver(Observer):
    """
    The `engine.framework.observer.Observer` of the metrics.

    `decisions`, `points`, `plugins`: durations of decisions, of extension points and of plugin calls. Plugin calls are
    timed in the fraction `sampled` of cycles, which a generator with `seed` chooses; upstream's is 0.1.
    `count_failure`: for out-of-tree plugins, whose calls are timed in every cycle.
    """

    def __init__(
        self,
        profiles: Iterable[Profile],
        *,
        decisions: Sequence[HistogramSeries],
        points: Histogram,
        plugins: Histogram,
        sampled: float,
        seed: int,
        count_failure: CountFailure | None = None,
        now_s: Callable[[], float],
    ) -> None:
        self._decisions, self._points = decisions, points
        self._sampled = sampled
        self._draw = Random(seed).random
        self._now_s = now_s
        clocked = partial(_ObservedProfile, plugins=plugins, count=count_failure, now_s=now_s)
        self._observed = {profile.scheduler_name: clocked(profile) for profile in profiles}
        #: The running cycle's profile, or the last one's.
        self._running: _ObservedProfile
        #: None between cycles.
        self._began_s: float | None = None
        self._entered_s = 0.0
        self._is_sampled = False

    def begin(self, profile: Profile) -> Profile:
        """Start a cycle. Return `profile`, or in a sampled cycle the same with every plugin timed."""
        self._running = self._observed[profile.scheduler_name]
        self._began_s = self._now_s()
        self._is_sampled = self._draw() < self._sampled
        return self._running.timed if self._is_sampled else self._running.untimed

    def enter(self, point: str) -> None:  # noqa: ARG002 - `leave` needs it
        """Note when the extension point begins."""
        self._entered_s = self._now_s()

    def leave(self, point: str, code: Code) -> None:
        """Observe the duration of the extension point."""
        elapsed_s = self._now_s() - self._entered_s
        running = self._running
        if code is not Code.SUCCESS:
            self._points.labels(point, code.value, running.name).observe(elapsed_s)
            return
        if point not in running.succeeded:
            running.succeeded[point] = self._points.labels(point, _SUCCESS, running.name)
        running.succeeded[point].observe(elapsed_s)

    def evaluated(self, plugin: str, point: str) -> None:
        """Count an evaluation of the plugin at the point."""
        self._running.evaluations[plugin, point] += 1

    def end(self) -> None:
        """Observe the duration of the decision. Does nothing between cycles."""
        if self._began_s is not None:
            elapsed_s = self._now_s() - self._began_s
            for series in self._decisions:
                series.observe(elapsed_s)
            self._began_s = None

    def evaluations(self) -> Mapping[tuple[str, ...], int]:
        """Return the evaluations by plugin, extension point and profile, zeros included."""
        return {
            (plugin, point, name): n
            for name, observed in self._observed.items()
            for (plugin, point), n in observed.evaluations.items()
        }


class _ObservedProfile:
    """A profile for sampled cycles (`timed`) and for others (`untimed`), which time out-of-tree plugins alone."""

    __slots__ = ("evaluations", "name", "succeeded", "timed", "untimed")

    def __init__(
        self,
        profile: Profile,
        *,
        plugins: Histogram,
        count: CountFailure | None,
        now_s: Callable[[], float],
    ) -> None:
        self.name = profile.scheduler_name
        guests = [] if count is None else profile.out_of_tree
        names_of_guests = {guest.name for guest in guests}

        def timer(histogram: Histogram | None, plugin: str) -> _Timer | None:
            its_count = count if plugin in names_of_guests else None
            is_timed = histogram is not None or its_count is not None
            return _Timer(self.name, plugin, histogram, its_count, now_s) if is_timed else None

        self.timed = _timed(profile, partial(timer, plugins))
        self.untimed = _timed(profile, partial(timer, None)) if guests else profile
        for guest in guests:
            guest.watched = _Timer(self.name, guest.name, None, count, now_s).outside
        #: Series of successful runs by extension point, for the hot path.
        self.succeeded: dict[str, HistogramSeries] = {}
        #: Number of evaluations by plugin and extension point.
        self.evaluations: defaultdict[tuple[str, str], int] = defaultdict(int)
        names = [(p.name, "PreFilter", "Filter") for p in profile.filters]
        names += [(w.plugin.name, "PreScore", "Score") for w in profile.scorers]
        for name, first, second in names:
            self.evaluations[name, first] = self.evaluations[name, second] = 0


class _Timer:
    """Times the calls of one plugin, for the histogram if there is one; counts failures of an out-of-tree plugin."""

    __slots__ = ("_count", "_histogram", "_n_nodes", "_plugin", "_profile", "now_s")

    def __init__(
        self,
        profile: str,
        plugin: str,
        histogram: Histogram | None,
        count: CountFailure | None,
        now_s: Callable[[], float],
    ) -> None:
        self._profile, self._plugin, self._histogram, self._count = profile, plugin, histogram, count
        self.now_s = now_s
        self._n_nodes = 0

    def begin(self, n_nodes: int) -> None:
        """Note that the next calls are about so many nodes."""
        self._n_nodes = n_nodes

    def run(
        self,
        point: str,
        call: Callable[[], _T],
        status_of: Callable[[_T], str | None] = _success,
        *,
        before_s: float = 0.0,
    ) -> _T:
        """Return the call's result; observe its time, with `before_s` of earlier work, unless its status is None."""
        started_s = self.now_s() - before_s
        try:
            result = call()
        except PluginFailed:
            self._observe(point, self.now_s() - started_s, Code.ERROR.value, failed=True)
            raise
        if (status := status_of(result)) is not None:
            self._observe(point, self.now_s() - started_s, status)
        return result

    def outside(self, call: Callable[[], _T]) -> _T:
        """Return the result of a call outside of cycles, of PreEnqueue or a hint; count it if it fails."""
        started_s, failed = self.now_s(), True
        try:
            result = call()
            failed = False
            return result
        finally:
            self._observe("", self.now_s() - started_s, "", failed=failed)

    def _observe(self, point: str, elapsed_s: float, status: str, *, failed: bool = False) -> None:
        """Observe a call that has just ended; count it if it failed or took too long."""
        if self._histogram is not None:
            self._histogram.labels(self._plugin, point, status).observe(elapsed_s)
        if self._count is not None and (
            failed or elapsed_s > LONGEST_CALL_S * max(1.0, self._n_nodes / _N_NODES)
        ):
            self._count(self._plugin, self._profile, "error" if failed else "overrun")


def _timed(profile: Profile, timer_of: Callable[[str], _Timer | None]) -> Profile:
    """Return the profile; each plugin for which `timer_of` returns a timer is wrapped to be timed."""

    def filtering(plugin: FilterPlugin) -> FilterPlugin:
        timer = timer_of(plugin.name)
        return plugin if timer is None else _TimedFilterPlugin(plugin, timer)

    def scoring(plugin: ScorePlugin) -> ScorePlugin:
        timer = timer_of(plugin.name)
        return plugin if timer is None else _TimedScorePlugin(plugin, timer)

    return replace(
        profile,
        filters=tuple(map(filtering, profile.filters)),
        scorers=tuple(replace(weighted, plugin=scoring(weighted.plugin)) for weighted in profile.scorers),
    )


class _TimedFilterPlugin(FilterPlugin):
    """A plugin whose PreFilter and Filter calls are timed. A decision makes no other calls."""

    def __init__(self, plugin: FilterPlugin, timer: _Timer) -> None:
        self.name = plugin.name
        self._plugin = plugin
        self._timer = timer

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        self._timer.begin(view.n_nodes)
        result = self._timer.run("PreFilter", lambda: self._plugin.prefilter(context, view), _status)
        if isinstance(result, Skip | Status):
            return result
        if isinstance(result, PreFilterResult):
            return replace(result, node_filter=_TimedNodeFilter(result.node_filter, self._timer))
        return _TimedNodeFilter(result, self._timer)


class _TimedNodeFilter(NodeFilter):
    """A filter whose first mask is timed: that of Filter."""

    def __init__(self, node_filter: NodeFilter, timer: _Timer) -> None:
        self._filter, self._timer = node_filter, timer
        self._is_timed = False
        if node_filter.prepare is not None:
            self.prepare = partial(self._timed_pieces, node_filter.prepare)
        self._prepared_s = 0.0
        self.needs_pods, self.copies = node_filter.needs_pods, node_filter.copies
        self.reserve = node_filter.reserve

    def _timed_pieces(self, prepare: Callable[[Mask], Pieces[None]], rows: Mask) -> Pieces[None]:
        began_s = self._timer.now_s()
        for _ in prepare(rows):
            self._prepared_s += self._timer.now_s() - began_s
            yield
            began_s = self._timer.now_s()
        self._prepared_s += self._timer.now_s() - began_s

    def mask(self) -> Mask:
        return self._first_timed(self._filter.mask)

    def mask_within(self, rows: Mask) -> Mask:
        return self._first_timed(lambda: self._filter.mask_within(rows))

    def _first_timed(self, call: Callable[[], Mask]) -> Mask:
        if self._is_timed:
            return call()
        self._is_timed = True
        return self._timer.run("Filter", call, before_s=self._prepared_s)

    def statuses(self) -> NodeStatuses:
        return self._filter.statuses()

    @property
    def trial(self) -> TrialAt | None:
        return self._filter.trial

    @property
    def room(self) -> RoomFilter | None:
        return self._filter.room


class _TimedScorePlugin(ScorePlugin):
    """A plugin whose PreScore, Score and NormalizeScore calls are timed."""

    def __init__(self, plugin: ScorePlugin, timer: _Timer) -> None:
        self.name = plugin.name
        self._plugin = plugin
        self._timer = timer

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        self._timer.begin(view.n_nodes)
        result = self._timer.run("PreScore", lambda: self._plugin.prescore(context, view, feasible), _status)
        if isinstance(result, Skip | Status):
            return result
        return _TimedNodeScorer(result, self._timer)


class _TimedNodeScorer(Generic[_Raw]):
    def __init__(self, scorer: NodeScorer[_Raw], timer: _Timer) -> None:
        self._scorer, self._timer = scorer, timer

    def raw(self) -> _Raw:
        return self._timer.run("Score", self._scorer.raw)

    def normalized(self, raw: _Raw) -> Scores:
        # The same array means that the plugin does not normalise; upstream makes no call then.
        return self._timer.run(
            _NORMALIZE,
            lambda: self._scorer.normalized(raw),
            lambda scores: None if scores is raw else _SUCCESS,
        )


def _status(result: PreFiltered | PreScored) -> str:
    """Return upstream's status label of a PreFilter or PreScore call."""
    if isinstance(result, Skip):
        return Code.SKIP.value
    return result.code.value if isinstance(result, Status) else _SUCCESS
