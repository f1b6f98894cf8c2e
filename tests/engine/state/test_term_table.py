"""Terms weighed as arrays select what they select one by one."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from scheduler.engine.state.id_sets import Interned, Postings
from scheduler.engine.state.matching import NamespaceRule
from scheduler.engine.state.term_table import NamespaceRuleIndex, SelectorIndex
from scheduler.engine.syntax.selectors import EVERYTHING, NOTHING, Requirement, Selector

KEYS, VALUES = ("a", "b", "c"), ("1", "2", "3")
values = st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(tuple)
requirements = st.one_of(
    st.builds(Requirement, st.sampled_from(KEYS), st.sampled_from(("In", "NotIn")), values),
    st.builds(Requirement, st.sampled_from(KEYS), st.sampled_from(("Exists", "DoesNotExist"))),
)
selectors = st.one_of(
    st.just(NOTHING), st.lists(requirements, max_size=4).map(lambda its: Selector(tuple(its)))
)
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
namespaces = st.sampled_from(("x", "y", "z"))
rules = st.builds(NamespaceRule, st.frozensets(namespaces), selectors)


@given(st.lists(selectors, max_size=12), st.data(), labels)
def test_an_index_matches_the_labels_that_its_selectors_match(its, data, some):
    """After some were removed and their ids used again."""
    index = SelectorIndex()
    ids = [(one, index.add(one)) for one in its]
    kept = []
    for one, number in ids:
        if data.draw(st.booleans()):
            kept.append((one, number))
        else:
            index.remove(number)
    kept += [(one, index.add(one)) for one in data.draw(st.lists(selectors, max_size=4))]
    matches = index.matching(some)
    assert [bool(matches[number]) for _, number in kept] == [one.matches(some) for one, _ in kept]


@given(st.lists(selectors, max_size=4), labels)
def test_what_selectors_read_of_labels_is_matched_as_the_labels_are(its, some):
    index = SelectorIndex()
    for one in its:
        index.add(one)
    read = index.read(some)
    assert [one.matches(read) for one in its] == [one.matches(some) for one in its]
    assert read.keys() <= {requirement.key for one in its for requirement in one.requirements}


@given(st.lists(rules, max_size=8), namespaces, st.one_of(st.none(), labels))
def test_an_index_covers_the_namespaces_that_its_rules_cover(its, namespace, some):
    index = NamespaceRuleIndex()
    wide = NamespaceRule(frozenset(f"{namespace}{number}" for number in range(2000)) | {"y"}, NOTHING)
    ids = [(rule, index.add(rule)) for rule in [*its, wide, NamespaceRule(frozenset(), EVERYTHING)]]
    covers = index.covering(namespace, some)
    assert [bool(covers[number]) for _, number in ids] == [rule.covers(namespace, some) for rule, _ in ids]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.booleans())))
def test_postings_are_sets_of_ids_by_key(steps):
    postings: Postings[str] = Postings()
    plain: dict[str, set[int]] = {}
    for key, number, adds in steps:
        its = plain.setdefault(key, set())
        if adds and number not in its:
            postings.add(key, number)
            its.add(number)
        elif not adds and number in its:
            postings.remove(key, number)
            its.discard(number)
        assert np.array_equal(np.sort(postings.array(key)), sorted(its))
    assert postings._by_key.keys() == {key for key, its in plain.items() if its}


def test_an_id_is_used_again_after_its_last_removal():
    interned: Interned[str] = Interned()
    assert [interned.add(value) for value in "aab"] == [(0, True), (0, False), (1, True)]
    assert (interned.remove(0), interned.remove(0)) == (None, "a")
    assert interned.add("c") == (0, True)
    assert (interned.n_ids, interned.ids) == (2, {"c": 0, "b": 1})
