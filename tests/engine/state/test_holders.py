"""Holders of keys, against a plain count of each."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.state.sparse_dicts import Holders

_PAIRS = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"))


@given(st.lists(st.tuples(_PAIRS, st.booleans()), max_size=30))
def test_each_holder_holds_a_key_as_often_as_it_was_added(steps: list[tuple[tuple[str, str], bool]]) -> None:
    holders, counts = Holders(), Counter[tuple[str, str]]()
    for (key, holder), is_added in steps:
        if is_added:
            counts[key, holder] += 1
            assert holders.add(key, holder) is (counts[key, holder] == 1)
        elif counts[key, holder]:
            counts[key, holder] -= 1
            assert holders.discard(key, holder) is (counts[key, holder] == 0)
        held = +counts
        assert set(holders.keys()) == {key for key, _ in held}
        for each in "ab":
            assert dict(holders.of(each)) == {name: n for (key, name), n in held.items() if key == each}
            assert {name for name in "xyz" if holders.holds(each, name)} == set(holders.of(each))
