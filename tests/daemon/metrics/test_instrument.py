"""Timing plugins from outside: sampling, recording, and unchanged decisions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.metrics.instrument import CycleObserver, _TimedNodeFilter, _Timer
from scheduler.daemon.metrics.series import Family, Histogram, HistogramSeries
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.framework.interface import NodeFilter, PodContext, PreFilterResult, RuleFilter
from scheduler.engine.framework.node_trial import FilterTrials
from scheduler.engine.framework.status import Code, Skip, Status
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from tests.daemon.metrics.scheduling import Observed, samples
from tests.support.build import ZONE, Json, affinity, node_affinity, node_term, selector, spread, term
from tests.support.driving import NAME, bind_of

_PROFILE = build_profiles(default_settings(), ClusterView(ClusterState()))[NAME]
_PLUGIN = "scheduler_plugin_execution_duration_seconds_count"


def _observer(
    *,
    sampled: float = 0.1,
    seed: int = 1,
    step_s: float = 0.001,
    algorithm: HistogramSeries | None = None,
) -> tuple[CycleObserver, Histogram]:
    """Return an observer whose clock advances by `step_s` at every read, and its extension points."""
    ticks: Iterator[int] = count()
    points = Histogram(Family("points", "help", ("extension_point", "status", "profile"), (0.5, 1.5)))
    observer = CycleObserver(
        [_PROFILE],
        decisions=(algorithm or Histogram(Family("algorithm", "help", bounds=(1.0,))).labels(),),
        points=points,
        plugins=Histogram(Family("plugins", "help", ("plugin", "extension_point", "status"), (1.0,))),
        sampled=sampled,
        seed=seed,
        now_s=lambda: next(ticks) * step_s,
    )
    return observer, points


def _sampled_cycles(seed: int, n: int = 1000, sampled: float = 0.1) -> list[int]:
    observer, _ = _observer(seed=seed, sampled=sampled)
    return [cycle for cycle in range(n) if observer.begin(_PROFILE) is not _PROFILE]


def test_the_same_seed_samples_the_same_cycles() -> None:
    assert _sampled_cycles(seed=7) == _sampled_cycles(seed=7) != _sampled_cycles(seed=8)


@pytest.mark.parametrize(
    ("sampled", "at_least", "at_most"),
    [
        pytest.param(0.1, 70, 130, id="one of ten by default"),
        pytest.param(0.0, 0, 0, id="never"),
        pytest.param(1.0, 1000, 1000, id="always"),
    ],
)
def test_the_given_fraction_of_cycles_is_sampled(sampled: float, at_least: int, at_most: int) -> None:
    assert at_least <= len(_sampled_cycles(seed=3, sampled=sampled)) <= at_most


def test_the_timed_profile_is_built_once() -> None:
    """Wrapping a dozen plugins in every tenth cycle would cost more than the timing."""
    observer, _ = _observer(sampled=1.0)
    assert observer.begin(_PROFILE) is observer.begin(_PROFILE)


@pytest.mark.parametrize("code", list(Code))
def test_an_extension_point_is_timed_under_its_status(code: Code) -> None:
    """From enter to leave, by the injected clock; status strings are upstream's."""
    observer, points = _observer(step_s=1.0)
    observer.begin(_PROFILE)
    observer.enter("PreFilter")
    observer.leave("PreFilter", code)
    series = points.labels("PreFilter", code.value, NAME)
    assert (series.n_by_bucket, series.sum) == ([0, 1, 0], 1.0)


def test_the_algorithm_is_timed_from_begin_to_end() -> None:
    """Once per cycle; `end` without a cycle, as after an empty queue, does nothing."""
    algorithm = Histogram(Family("algorithm", "help", bounds=(10.0,))).labels()
    observer, _ = _observer(algorithm=algorithm, step_s=1.0)
    observer.end()
    observer.begin(_PROFILE)
    observer.enter("PreFilter")
    observer.leave("PreFilter", Code.SUCCESS)
    observer.end()
    observer.end()
    assert (sum(algorithm.n_by_bucket), algorithm.sum) == (1, 3.0)


def _bind_pods(observed: Observed) -> dict[str, str]:
    """Bind pods of every kind of constraint to nine nodes of three zones. Returns: node by pod name."""
    driver = observed.driver
    for index in range(9):
        driver.node(f"n{index}", labels={ZONE: f"z{index % 3}"})
    apart = affinity(anti_preferred=[(10, term(ZONE, selector("app=web")))])
    nodes = {}
    for index in range(12):
        constraints: list[Json] = [
            {"affinity": apart},
            {"spread": [spread(ZONE, selector("app=web"))]},
            {"affinity": {"nodeAffinity": node_affinity(required=[node_term(named=["in n4"])])}},
        ]
        pod = driver.pod(f"p{index}", labels={"app": "web"}, **constraints[index % 3])
        bind = bind_of(observed.cycle())
        driver.confirm(pod, bind.node_name)
        nodes[pod.name] = bind.node_name
    return nodes


def test_a_timed_plugin_decides_as_the_plugin_does() -> None:
    timed, bare = _bind_pods(Observed(sampled=1.0)), _bind_pods(Observed(sampled=0.0))
    assert len(bare) == 12
    assert timed == bare


def test_a_timed_filter_passes_on_all_that_a_filter_may_define() -> None:
    """A filter of devices was asked about no row in a timed cycle, and its pod's claim was not given up."""
    may_define = {name for name in vars(NodeFilter) if not name.startswith("_")}
    attributes = {"needs_pods", "copies", "reserve", "prepare"}
    assert "mask_within" in may_define
    assert may_define - attributes <= vars(_TimedNodeFilter).keys()


def test_what_a_filter_prepares_in_pieces_is_part_of_its_time() -> None:
    """Filter takes one tick of the clock for each piece and one for the mask, and none for what is between pieces."""
    ticks = count()
    plugins = Histogram(Family("plugins", "help", ("plugin", "extension_point", "status"), (10.0,)))

    class InPieces(RuleFilter):
        def prepare(self, rows: Mask) -> Pieces[None]:
            assert rows.all()
            yield
            yield

    rows = np.ones(1, np.bool_)
    timer = _Timer("profile", "InPieces", plugins, None, lambda: next(ticks))
    timed = _TimedNodeFilter(InPieces(1), timer)
    assert timed.prepare is not None
    for _ in timed.prepare(rows):
        next(ticks)
    timed.mask_within(rows)
    assert plugins.labels("InPieces", "Filter", "Success").sum == 3 + 1


@pytest.mark.parametrize("sampled", [0.0, 1.0])
def test_where_only_room_matters_all_nodes_are_asked_at_once_in_every_cycle(sampled: float) -> None:
    driver = Observed(sampled=0.0).driver
    driver.node("n")
    pod, view = driver.pod("p"), ClusterView(driver.state)
    context = PodContext(pod, view.label_set(pod))
    answers = [
        (plugin.name, plugin.prefilter(context, view))
        for plugin in _observer(sampled=sampled)[0].begin(_PROFILE).filters
    ]
    filters = [(name, one) for name, one in answers if not isinstance(one, Skip | Status | PreFilterResult)]
    room = FilterTrials(filters).room_only
    assert room is not None
    assert (room.plugin, room.is_only_trial) == ("NodeResourcesFit", True)


CALLS = """
COUNT{plugin="InterPodAffinity",extension_point="PreFilter",status="Skip"} 12
COUNT{plugin="NodeAffinity",extension_point="PreFilter",status="Success"} 4
COUNT{plugin="NodeAffinity",extension_point="PreFilter",status="Skip"} 8
COUNT{plugin="NodeAffinity",extension_point="Filter",status="Success"} 4
COUNT{plugin="PodTopologySpread",extension_point="Filter",status="Success"} 4
COUNT{plugin="NodeResourcesFit",extension_point="PreScore",status="Success"} 8
COUNT{plugin="NodeResourcesFit",extension_point="Score",status="Success"} 8
COUNT{plugin="InterPodAffinity",extension_point="ScoreExtensionNormalize",status="Success"} 7
""".replace("COUNT", _PLUGIN)


def test_sampled_calls_are_timed_by_plugin_point_and_status() -> None:
    """
    Statuses as upstream's. A plugin that skips is not called again in that cycle, one node is not scored.

    A plugin that does not normalise has no such series: upstream makes no call then.
    """
    observed = Observed(sampled=1.0)
    _bind_pods(observed)
    found, expected = observed.samples(), samples(CALLS.encode())
    assert {each: found.get(each) for each in expected} == expected
    labels = (
        ("extension_point", "ScoreExtensionNormalize"),
        ("plugin", "NodeResourcesFit"),
        ("status", "Success"),
    )
    assert (_PLUGIN, labels) not in found


def test_evaluations_are_counted_in_every_cycle_unless_skipped() -> None:
    """Without sampling; every plugin of the profile has a series from the start."""
    observed = Observed(sampled=0.0)
    before = observed.observer.evaluations()
    assert before["InterPodAffinity", "Filter", NAME] == before["ImageLocality", "Score", NAME] == 0
    _bind_pods(observed)
    after = observed.observer.evaluations()
    assert (after["NodeAffinity", "PreFilter", NAME], after["NodeAffinity", "Filter", NAME]) == (4, 4)
    assert after["PodTopologySpread", "Filter", NAME] == 4
    assert not any(name == _PLUGIN for name, _ in observed.samples())
