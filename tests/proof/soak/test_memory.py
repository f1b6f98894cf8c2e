"""Churn leaves the scheduler's containers as large as before."""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from tests.proof.soak.churn import Churn
from tests.proof.soak.probing import module_level, sizes, unbounded_caches

#: Rounds until the bounded caches are full, and further rounds, which must not grow anything.
_UNTIL_FULL, _FURTHER = 300, 30
#: Rounds whose ends are compared, since change logs vary in length.
_COMPARED = 10


def _held(churn: Churn) -> Counter[str]:
    found = sizes(churn.driver.machine, churn.driver._decoder)
    found.update(module_level())
    return found


@pytest.mark.slow
def test_churn_grows_no_container() -> None:
    """No container of machine, queue, state, plugins and decoder has more elements than fifty clusters ago."""
    churn = Churn()
    most: Counter[str] = Counter()
    fewest: Counter[str] = Counter()
    for number in range(_UNTIL_FULL + _FURTHER):
        churn.round(number)
        if _UNTIL_FULL - _COMPARED <= number < _UNTIL_FULL:
            most |= _held(churn)
        elif number >= _UNTIL_FULL + _FURTHER - _COMPARED:
            held = _held(churn)
            fewest = fewest & held if fewest else held
    gc.collect()
    churn.driver.audit()
    assert {path: (most[path], n) for path, n in fewest.items() if n > most[path]} == {}


def test_the_probe_sees_every_room() -> None:
    """A room that it does not see could grow unnoticed."""
    churn = Churn()
    churn.round(0)
    paths = _held(churn)
    rooms = {path.partition(".")[0] for path in paths}
    assert {
        "PodQueue", "UnschedulablePods", "OrderedPods", "QueueingHints",
        "NodeTable", "LabelColumn", "PodColumns", "LabelSet", "LabelSets", "ExistingTerms", "ExistingPodTerm",
        "DerivedValues", "ChangeLog", "Workloads", "ClusterState", "KubeletRefusals",
        "PodRecords", "Preemptions", "Reservations", "GroupTurns", "GroupNominations",
        "InterPodAffinity", "MemoBySpec",
        "PodDecoder",
    } <= rooms  # fmt: skip
    # The machine's own, which it shares: the probe counts them under the name of the room in which it meets them first.
    assert {"_by_uid", "_profiles"} <= {path.rpartition(".")[2] for path in paths}


def test_no_function_has_an_unbounded_cache() -> None:
    assert unbounded_caches() == []
