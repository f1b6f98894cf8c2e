"""Several rules over all nodes, asked again when some of their arrays are others."""

import numpy as np

from scheduler.framework.rules import KeptRules
from scheduler.framework.verdicts import unschedulable

_FIRST, _SECOND = unschedulable("first"), unschedulable("second")


def test_another_array_of_any_rule_is_looked_at_everywhere() -> None:
    even, low = np.array([True, False, True, False]), np.array([True, True, False, False])
    kept = KeptRules([(even, _FIRST), (low, _SECOND)], 4)
    assert kept.fits().tolist() == [True, False, False, False]
    high = ~low
    assert kept.again([(even, _FIRST), (high, _SECOND)], []).tolist() == [False, False, True, False]
    assert kept.again([(~even, _FIRST), (high, _SECOND)], []).tolist() == [False, False, False, True]
    assert kept.again([(high, _SECOND)], []).tolist() == high.tolist()


def test_the_same_arrays_are_looked_at_where_pods_moved() -> None:
    even, low = np.array([True, False, True, False]), np.array([True, True, False, False])
    kept = KeptRules([(even, _FIRST), (low, _SECOND)], 4)
    before = kept.fits()
    even[0], low[2] = False, True
    assert kept.again([(even, _FIRST), (low, _SECOND)], [0, 2]) is before
    assert before.tolist() == [False, False, True, False]
