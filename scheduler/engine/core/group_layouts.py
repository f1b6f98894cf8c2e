"""
Chooses the domains that a group fills, level by level from the outside in, from counts of free places.

    one domain of the level has room for all  -->  it is the one that needs the fewest domains within it; of these the
                                                   tightest
    none has                                  -->  the largest is used up, and so on; the rest goes into the tightest

So a level has the fewest domains that there can be, and large holes stay for large groups. Bound: where several domains
of an outer level are used, these are the fewest, and an inner level may have more than the fewest. Pure arithmetic: the
search tries whether the places exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from scheduler.engine.state.arrays import Amounts, Rows
from scheduler.engine.state.columns import ABSENT


class Layout(NamedTuple):
    """The lowest domains, as rows, in the order of filling, and how many are used of each level from the outside in."""

    n_domains: tuple[int, ...]
    domains: tuple[Rows, ...]


def layout_of(
    rows: Rows, room: Amounts, levels: Sequence[Rows], n_wanted: int, held: Amounts
) -> Layout | None:
    """
    Return the domains, None if the rows that have all labels have too little room.

    `room`: how many of the pods each row takes. `levels`: from the outside in, the domain of each row. `n_wanted`: at
    least one. `held`: domains with the highest come first; see `SearchRequest.held`.
    """
    for ids in levels:
        rows = rows[ids[rows] != ABSENT]
    # A full row counts where members run on it: its domain is near.
    rows = rows[(room[rows] > 0) | (held[rows] > 0)]
    return _layout_of(rows, room, levels, n_wanted, held) if room[rows].sum() >= n_wanted else None


def _layout_of(rows: Rows, room: Amounts, levels: Sequence[Rows], n_wanted: int, held: Amounts) -> Layout:
    """Return the layout of rows that have room for `n_wanted`, at least one."""
    if not levels:
        return Layout((), (rows,))
    rows = rows[np.argsort(levels[0][rows], kind="stable")]
    ids = levels[0][rows]
    starts = np.flatnonzero(np.diff(ids, prepend=ABSENT))
    ends = np.append(starts[1:], len(rows))
    rooms = np.add.reduceat(room[rows], starts)
    by_room = np.argsort(-rooms, kind="stable")
    by_room = by_room[rooms[by_room] > 0]
    nearness = np.maximum.reduceat(held[rows], starts)[by_room]
    inner, n_left, chosen = levels[1:], n_wanted, list[Layout]()
    for numbers in (by_room[nearness == 2], by_room[nearness == 1], by_room[nearness == 0]):
        sums = np.cumsum(rooms[numbers])
        n_whole = int(np.searchsorted(sums, n_left))
        for number in numbers[:n_whole].tolist():
            within = rows[starts[number] : ends[number]]
            chosen.append(_layout_of(within, room, inner, rooms.item(number), held))
        n_rest = n_left - (sums.item(n_whole - 1) if n_whole else 0)
        if n_whole == len(numbers):
            n_left = n_rest
            continue
        left = numbers[n_whole:]
        fitting = left[rooms[left] >= n_rest][::-1].tolist()
        some = (rows[starts[number] : ends[number]] for number in fitting)
        chosen.append(_fewest(_layout_of(within, room, inner, n_rest, held) for within in some))
        break
    n_inner = (sum(numbers) for numbers in zip(*(each.n_domains for each in chosen), strict=True))
    return Layout((len(chosen), *n_inner), tuple(within for each in chosen for within in each.domains))


def _fewest(layouts: Iterator[Layout]) -> Layout:
    """Return the first layout with the fewest domains; make no more once one has a single domain of each level."""
    best = next(layouts)
    while sum(best.n_domains) > len(best.n_domains) and (each := next(layouts, None)) is not None:
        best = min(best, each, key=lambda layout: layout.n_domains)
    return best
