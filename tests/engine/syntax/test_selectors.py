"""Label selectors: parsing, matching, canonical form and upstream's refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.syntax.names import label_key_faults, label_value_faults
from scheduler.engine.syntax.selectors import (
    EVERYTHING,
    NOTHING,
    Requirement,
    Selector,
    SelectorError,
    merge_requirements,
    parse_selector,
    with_requirements,
)
from tests.reference import selectors as reference

#: The sentences themselves are checked in test_names.
NAME_RULE = label_key_faults("-")[0].removeprefix("name part ")
VALUE_RULE = label_value_faults("-")[0]


@pytest.mark.parametrize(
    ("selector", "matched", "empty"),
    [
        pytest.param(NOTHING, False, False, id="nil"),
        pytest.param(EVERYTHING, True, True, id="everything"),
        pytest.param(parse_selector(None, None), True, True, id="no fields"),
        pytest.param(parse_selector({}, []), True, True, id="empty fields"),
    ],
)
def test_nil_selects_nothing_and_an_empty_selector_everything(selector, matched, empty):
    assert selector.matches({}) is matched
    assert selector.matches({"app": "web"}) is matched
    assert selector.is_empty is empty


def test_nothing_is_not_everything_though_both_have_no_requirements():
    assert NOTHING != EVERYTHING
    assert Selector((Requirement("app", "In", ("web",)),), is_nothing=True) == NOTHING


@pytest.mark.parametrize(
    ("match_labels", "expressions", "message"),
    [
        pytest.param(
            {"bad key!": "v"}, [], f'key: Invalid value: "bad key!": name part {NAME_RULE}', id="bad key"
        ),
        pytest.param(
            {"app": "v!"},
            [],
            f'values[0][app]: Invalid value: "v!": {VALUE_RULE}',
            id="bad value of matchLabels",
        ),
        pytest.param(
            None,
            [("app", "NotIn", ("fine", "-"))],
            f'values[1][app]: Invalid value: "-": {VALUE_RULE}',
            id="bad value of an expression",
        ),
        pytest.param(
            None,
            [("app", "In", ())],
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            id="In without values",
        ),
        pytest.param(
            None,
            [("app", "Exists", ("a", "b"))],
            'values: Invalid value: ["a","b"]: values set must be empty for exists and does not exist',
            id="Exists with values",
        ),
        pytest.param(
            None, [("app", "Gt", ("1",))], '"Gt" is not a valid label selector operator', id="node operator"
        ),
        pytest.param(
            {"b": "v!", "a": "w!"},
            [("c", "Like", ())],
            f'values[0][a]: Invalid value: "w!": {VALUE_RULE}',
            id="the smallest bad key of matchLabels comes first",
        ),
        pytest.param(
            None,
            [("-", "NotIn", ())],
            f'[key: Invalid value: "-": name part {NAME_RULE}, '
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty]",
            id="two problems",
        ),
        pytest.param(
            None,
            [('a"\n', "Exists", ())],
            f'key: Invalid value: "a\\"\\n": name part {NAME_RULE}',
            id="text that breaks lines is escaped",
        ),
    ],
)
def test_a_bad_selector_is_refused_in_upstreams_words(match_labels, expressions, message):
    with pytest.raises(SelectorError) as refused:
        parse_selector(match_labels, expressions)
    assert str(refused.value) == message


def test_the_anchor_is_the_in_requirement_with_the_fewest_values():
    selector = parse_selector({"tier": "web"}, [("app", "In", ("a", "b")), ("a", "NotIn", ("z",))])
    assert selector.anchor() == ("tier", ("web",))


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param(NOTHING, id="nothing"),
        pytest.param(EVERYTHING, id="everything"),
        pytest.param(parse_selector(None, [("a", "Exists", ()), ("b", "NotIn", ("x",))]), id="no In"),
    ],
)
def test_a_selector_without_in_has_no_anchor(selector):
    assert selector.anchor() is None


def test_required_keys_are_those_of_in_and_exists():
    selector = parse_selector(
        {"app": "web"}, [("x", "Exists", ()), ("app", "Exists", ()), ("y", "DoesNotExist", ())]
    )
    assert selector.required_keys == ("app", "x")


keys = st.sampled_from(["app", "tier", "zone"])
values = st.sampled_from(["", "a", "b", "c"])
label_sets = st.dictionaries(keys, values)
expressions = st.lists(
    st.tuples(keys, st.sampled_from(["In", "NotIn"]), st.lists(values, min_size=1, max_size=4).map(tuple))
    | st.tuples(keys, st.sampled_from(["Exists", "DoesNotExist"]), st.just(())),
    max_size=4,
)
selectors = st.builds(parse_selector, st.dictionaries(keys, values), expressions)


@given(st.dictionaries(keys, values), expressions, label_sets)
def test_a_selector_matches_what_the_reference_s_matches(match_labels, written, labels):
    listed = [{"key": key, "operator": operator, "values": its} for key, operator, its in written]
    plain = reference.parse({"matchLabels": match_labels, "matchExpressions": listed})
    assert parse_selector(match_labels, written).matches(labels) == plain.matches(labels)


@given(expressions.flatmap(lambda written: st.tuples(st.just(written), st.permutations(written))))
def test_order_and_repetition_do_not_matter(orders):
    written, shuffled = orders
    one, other = parse_selector({}, written), parse_selector({}, [*shuffled, *written])
    assert one == other
    assert hash(one) == hash(other)


@given(selectors, label_sets)
def test_what_matches_is_found_by_anchor_and_required_keys(selector, labels):
    if selector.matches(labels):
        assert set(selector.required_keys) <= labels.keys()
        if anchor := selector.anchor():
            assert labels[anchor[0]] in anchor[1]


@given(selectors | st.just(NOTHING), label_sets, label_sets)
def test_added_pairs_are_required_too(selector, extra, labels):
    added = with_requirements(selector, extra)
    assert added.matches(labels) == (selector.matches(labels) and extra.items() <= labels.items())
    assert added.is_nothing == selector.is_nothing


@given(selectors | st.just(NOTHING), selectors | st.just(NOTHING), label_sets)
def test_merged_selectors_match_what_both_match(first, second, labels):
    merged = merge_requirements(first, second)
    assert merged.matches(labels) == (first.matches(labels) and second.matches(labels))
    assert merged == merge_requirements(second, first)
    assert merged.is_empty == (first.is_empty and second.is_empty)
