"""Each repeated decision beside one that is made anew: they have to be the same to the last score."""

from __future__ import annotations

from typing import Final

import numpy as np

from scheduler.core.decide import Placement, decided
from scheduler.core.standings import Standings
from scheduler.framework.observer import Unobserved
from scheduler.framework.profile import Profile
from scheduler.model.pods import Pod
from scheduler.state.snapshot import Snapshot

#: Holds every weighted score.
_WIDEST: Final = np.dtype(np.int64)

#: Nodes that are ranked, as many as a record has and one more.
_N_RANKED: Final = 4


class _First:
    """Draws the first: who is drawn is not compared, among whom is."""

    def randrange(self, _stop: int, /) -> int:
        return 0


def check(pod: Pod, snapshot: Snapshot, profile: Profile, repeated: Placement) -> None:
    """Raises AssertionError where `repeated` is not what `decided` says of the pod."""
    anew = decided(pod, snapshot, profile, _First(), Unobserved())
    assert isinstance(anew, Placement), (pod.key, anew)
    assert (repeated.n_evaluated, repeated.n_feasible) == (anew.n_evaluated, anew.n_feasible), pod.key
    _same(pod.key, repeated.standings, anew.standings)


def _same(name: str, repeated: Standings, anew: Standings) -> None:
    mask = anew.feasible.mask
    assert np.array_equal(repeated.feasible.mask, mask), name
    leaders = repeated.leaders
    assert leaders.first(leaders.n) == anew.leaders.first(anew.leaders.n), name
    assert leaders.total == anew.leaders.total, name
    assert repeated.chosen in leaders.first(leaders.n), name
    assert np.array_equal(repeated.totals()[mask], anew.totals()[mask]), name
    ranked = repeated.leading(_N_RANKED)
    assert [total for _, total in ranked] == [total for _, total in anew.leading(_N_RANKED)], name
    assert [total for _, total in ranked] == [anew.totals().item(row) for row, _ in ranked], name
    by_plugin = {one.plugin: one for one in anew.scores}
    for one in repeated.scores:
        # A plugin whose terms reach no node any more is skipped by who decides anew.
        other = by_plugin.get(one.plugin)
        wanted = np.zeros(int(mask.sum())) if other is None else other.weighted(_WIDEST)[mask]
        assert np.array_equal(one.weighted(_WIDEST)[mask], wanted), (name, one.plugin)
    assert dict(repeated.rejected()) == dict(anew.rejected()), name
