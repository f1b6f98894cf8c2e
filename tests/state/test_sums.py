"""Sums that are kept for an owner and asked for again, beside the same added up anew."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from scheduler.state.arrays import Amounts
from scheduler.state.columns import ABSENT, LabelColumn
from scheduler.state.row_counts import RowCounts
from scheduler.state.sums import InDomains, KeptSums, Selected, Sum, Weighted

N_ROWS = 40


class _Owner:
    """Whom sums are kept for."""


def _wanted(terms: Sequence[Weighted], columns: dict[str, LabelColumn]) -> Amounts:
    total = np.zeros(N_ROWS, dtype=np.int64)
    for term, weight in terms:
        ids, pods = columns[term.topology_key].ids[:N_ROWS], term.counts.rows(N_ROWS)
        total += [0 if domain == ABSENT else weight * pods[ids == domain].sum() for domain in ids.tolist()]
    return total


def _reaches(terms: Sequence[Weighted], columns: dict[str, LabelColumn]) -> bool:
    """Whether a pod of theirs is on a node that has the key: a sum of nothing but zeros is one, too."""
    return any(
        term.counts.rows(N_ROWS)[columns[term.topology_key].ids[:N_ROWS] != ABSENT].any() for term, _ in terms
    )


def _found(kept: Sum, *, reaches: bool, by_domain: bool) -> Amounts:
    """What is found; by domain unless somebody asks by node. A key that no node has is asked by neither."""
    found = kept.again(N_ROWS)
    assert (found is not None) == reaches
    assert isinstance(found, InDomains) or not (reaches and by_domain)
    if found is None:
        return np.zeros(N_ROWS, dtype=np.int64)
    if isinstance(found, InDomains):
        return found.amounts.take(found.column.ids[:N_ROWS])
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "keys", [("zone", "zone", "zone"), ("zone", "host", "zone"), ("zone", "nowhere", "zone")]
)
def test_sums_of_one_owner_are_of_their_own_terms_whichever_was_asked_for_last(
    keys: tuple[str, ...], seed: int
) -> None:
    """Pods come and go one by one, and more of one term's at a time than its counts remember; all of them, too."""
    chance = Random(seed)
    zones = [None if chance.random() < 0.1 else chance.choice("abc") for _ in range(N_ROWS)]
    columns = {
        "zone": LabelColumn.of("zone", zones, N_ROWS),
        "host": LabelColumn.of("host", [f"n{row}" for row in range(N_ROWS)], N_ROWS),
        "nowhere": LabelColumn("nowhere", N_ROWS),
    }
    weights = (1, 5, -3)
    first, second, third = (
        (Selected(key, RowCounts()), weight) for key, weight in zip(keys, weights, strict=True)
    )
    kept: KeptSums[_Owner] = KeptSums()
    owner = _Owner()
    some: list[list[Weighted]] = [[first], [first, second], [second, third], []]
    sums = [kept.of(owner, columns.__getitem__, terms, N_ROWS) for terms in some]
    for _ in range(300):
        for _ in range(chance.choice([0, 1, 1, 2])):
            term, _ = chance.choice([first, second, third])
            for _ in range(chance.choice([1, 1, 1, 20])):
                term.counts.add(chance.randrange(N_ROWS), 1)
            if chance.random() < 0.4:
                for row, n_pods in list(term.counts.items()):
                    term.counts.add(row, -n_pods)
        which = chance.choice([0, 0, 0, 1, 1, 1, 2, 3])
        if chance.random() < 0.1:
            sums[which] = kept.of(owner, columns.__getitem__, some[which], N_ROWS)
        reaches = _reaches(some[which], columns)
        found = _found(sums[which], reaches=reaches, by_domain="host" not in keys)
        assert found.tolist() == _wanted(some[which], columns).tolist()
