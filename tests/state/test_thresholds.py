"""Thresholds that are held and asked now and then, while pods come and go that nobody asks about."""

from random import Random

import numpy as np
import pytest

from scheduler.state.columns import LabelColumn
from scheduler.state.row_counts import RowCounts, Threshold

N_ROWS = 12


def _column(key: str, chance: Random) -> LabelColumn:
    """Nodes of their own or of a few zones, some without the label."""
    values = [f"n{row}" if key == "host" else chance.choice("abc") for row in range(N_ROWS)]
    return LabelColumn.of(key, [None if chance.random() < 0.2 else value for value in values], N_ROWS)


def _wanted(counts: RowCounts, column: LabelColumn, least: int) -> list[bool]:
    ids, pods = column.ids[:N_ROWS], counts.rows(N_ROWS)
    return [bool(domain) and int(pods[ids == domain].sum()) >= least for domain in ids.tolist()]


@pytest.mark.parametrize("key", ["host", "zone"])
@pytest.mark.parametrize("seed", range(8))
def test_whoever_asks_hears_of_all_pods_however_many_came_meanwhile(key: str, seed: int) -> None:
    """Many more of them than anybody is told of who does not ask, some on rows that hold no node."""
    chance = Random(seed)
    column, counts = _column(key, chance), RowCounts()
    thresholds = [(least, Threshold(counts, column, least, N_ROWS)) for least in (1, 1, 2, 3)]
    for _ in range(200):
        for _ in range(chance.choice([0, 1, 1, 2, 16, 17, 70])):
            row = chance.randrange(N_ROWS + 2)
            counts.add(row, -1 if counts.at(row) and chance.random() < 0.6 else 1)
        for least, threshold in chance.sample(thresholds, chance.randint(1, 2)):
            reached, wanted = threshold.reached(), _wanted(counts, column, least)
            assert (reached.mask.tolist(), reached.n) == (wanted, sum(wanted))
            assert reached.below.tolist() == [not reaches for reaches in wanted]


@pytest.mark.parametrize("key", ["host", "zone"])
def test_who_does_not_ask_is_told_no_more(key: str) -> None:
    """Else every pod would have to be told to all that were ever asked."""
    column, counts = _column(key, Random(1)), RowCounts()
    idle, asked = counts.follower(column, 1, N_ROWS), counts.follower(column, 1, N_ROWS, column.ids != 0)
    for _ in range(100):
        counts.add(0, 1)
        asked.reached(1)
    assert (idle.is_told, asked.is_told) == (False, True)
    assert counts.follower(column, 1, N_ROWS) is not idle


def test_sums_that_are_asked_for_are_told_for_as_long_as_that() -> None:
    """By way of the counts as by their own."""
    column, counts = _column("zone", Random(1)), RowCounts()
    first = counts.per_domain(column, N_ROWS)
    for row in range(100):
        counts.add(row % N_ROWS, 1)
        assert counts.per_domain(column, N_ROWS) is first
    assert first.totals.sum() == sum(n for row, n in counts.items() if column.ids[row])


@pytest.mark.parametrize("key", ["host", "zone"])
def test_who_is_forgotten_for_the_sake_of_others_is_told_no_more(key: str) -> None:
    column, counts = _column(key, Random(1)), RowCounts()
    masks = [np.ones(N_ROWS, dtype=np.bool_) for _ in range(20)]
    followers = [counts.follower(column, 1, N_ROWS, mask) for mask in masks]
    told = [one.is_told for one in followers]
    assert told == sorted(told)
    assert 0 < sum(told) < len(told)


@pytest.mark.parametrize("key", ["host", "zone"])
def test_new_domains_are_no_matter_of_who_knows_the_old_ones(key: str) -> None:
    """A node comes to a zone that nobody has counted for; whoever asks is told by somebody else."""
    column, counts = _column(key, Random(2)), RowCounts()
    old = counts.follower(column, 1, N_ROWS)
    column.set(0, "a zone of its own")
    counts.add(0, 1)
    new = counts.follower(column, 1, N_ROWS)
    assert (old.is_told, new is old) == (False, False)
    assert new.reached(1).mask.tolist() == _wanted(counts, column, 1)


@pytest.mark.parametrize("seed", range(8))
def test_the_fewest_pods_of_a_domain_are_those_of_a_recount(seed: int) -> None:
    """Domains get pods and lose them, whether or not anybody asks in between; some nodes do not count."""
    chance = Random(seed)
    column, counts = _column("zone", chance), RowCounts()
    among = np.array([chance.random() < 0.8 for _ in range(N_ROWS)])
    for _ in range(200):
        row = chance.randrange(N_ROWS)
        counts.add(row, -1 if counts.at(row) and chance.random() < 0.5 else 1)
        if chance.random() < 0.4:
            ids, pods = column.ids[:N_ROWS], np.where(among, counts.rows(N_ROWS), 0)
            wanted = [int(pods[ids == domain].sum()) for domain in set(ids[among].tolist()) - {0}]
            assert counts.per_domain(column, N_ROWS, among).fewest() == min(wanted)
