"""A decision beside one on a state that is built of the same objects and has derived nothing yet."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scheduler.engine.core.decide import CycleError, Decision, ScheduleResult, decide
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView


class _First:
    """Draws the first: which of the best nodes is chosen is not compared."""

    def randrange(self, _stop: int, /) -> int:
        return 0


def assert_as_if_fresh(pod: Pod, state: ClusterState, profile: Profile, decision: Decision) -> None:
    """Raise AssertionError if the decision is another than that on a state of the same nodes and pods."""
    fresh = state.copy()
    wanted = decide(pod, ClusterView(fresh), profile, _First())
    if isinstance(wanted, FitError):
        assert isinstance(decision, FitError), (pod.key, decision)
        assert (decision.message(), decision.rejecting) == (wanted.message(), wanted.rejecting), pod.key
        return
    assert not isinstance(decision, FitError), (pod.key, decision.message())
    if isinstance(wanted, CycleError):
        assert decision == wanted, pod.key
        return
    assert isinstance(decision, ScheduleResult), (pod.key, decision)
    _assert_same_scores(pod, decision, state, wanted, fresh)


def _assert_same_scores(
    pod: Pod, decision: ScheduleResult, state: ClusterState, wanted: ScheduleResult, fresh: ClusterState
) -> None:
    assert (decision.n_evaluated, decision.n_feasible) == (wanted.n_evaluated, wanted.n_feasible), pod.key
    totals, wanted_totals = _totals(decision, state), _totals(wanted, fresh)
    assert totals == wanted_totals, pod.key
    assert totals[decision.node_name] == max(totals.values()), pod.key
    assert _by_plugin(decision, state) == _by_plugin(wanted, fresh), pod.key
    reasons = decision.scores.filtered.reason_counts()
    assert reasons == wanted.scores.filtered.reason_counts(), pod.key


def _totals(decision: ScheduleResult, state: ClusterState) -> Mapping[str, int]:
    """Return the total of each feasible node."""
    scores = decision.scores
    rows = np.flatnonzero(scores.feasible.mask).tolist()
    return {state.nodes.name_of(row): scores.totals.item(row) for row in rows}


def _by_plugin(decision: ScheduleResult, state: ClusterState) -> Mapping[tuple[str, str], int]:
    """Return by plugin and feasible node the unweighted score."""
    scores = decision.scores
    rows = np.flatnonzero(scores.feasible.mask).tolist()
    return {
        (one.plugin, state.nodes.name_of(row)): one.scores.item(row)
        for one in scores.by_plugin
        for row in rows
    }
