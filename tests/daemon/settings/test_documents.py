"""YAML and JSON as Kubernetes reads them."""

import math
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.daemon.settings.documents import MAX_CHARS, read_document, write_document
from scheduler.daemon.settings.problems import Problems
from tests.support.case_blocks import case_blocks


def read(text):
    problems = Problems("f")
    return read_document(text, problems), list(problems.lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a: 1", {"a": 1}, id="integer"),
        pytest.param("a: 100000000000000000000", {"a": 10**20}, id="more than 64 bits"),
        pytest.param("a: [0x1f, 010, 0o10, 0b11, -5, +5, 0]", {"a": [31, 8, 8, 3, -5, 5, 0]}, id="bases"),
        pytest.param("a: [1e3, 1.5, .5, 1.]", {"a": [1000.0, 1.5, 0.5, 1.0]}, id="floats"),
        pytest.param("a: [yes, on, True, no, off, FALSE]", {"a": [True] * 3 + [False] * 3}, id="booleans"),
        pytest.param("a: [~, null, ]\nb:", {"a": [None, None], "b": None}, id="nulls"),
        pytest.param("a: [1:30, 2001-01-01, 1_000]", {"a": ["1:30", "2001-01-01", "1_000"]}, id="texts"),
        pytest.param("a: ['1', \"yes\", ''] # c", {"a": ["1", "yes", ""]}, id="quoted"),
        pytest.param("1: a\ntrue: b", {"1": "a", "true": "b"}, id="keys are text"),
        pytest.param('{\n\t"a":\t"b"\n}', {"a": "b"}, id="JSON with tabs"),
        pytest.param('{"a": "\\ud83d\\ude00\\/"}', {"a": "\U0001f600/"}, id="JSON escapes"),
        pytest.param("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}, id="aliases"),
        pytest.param(
            "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], z: 3}",
            {"a": {"x": 1, "y": 1}, "b": {"y": 2, "z": 2}, "c": {"x": 1, "y": 1, "z": 3}},
            id="merge keys",
        ),
        pytest.param("", None, id="an empty file"),
        pytest.param("---\n# comment\n", None, id="a comment alone"),
    ],
)
def test_values_read_as_kubernetes_reads_them(text, expected):
    assert read(text) == (expected, [])


UNREADABLE = r"""
# a repeated field
a: 1
b: 2
a: 3
=> a: found the field again in line 3 (first in line 1), expected it once
# a repeated field in nested JSON
{"p": [{"a": 1, "a": 1}]}
=> p[0].a: found the field again in line 1 (first in line 1), expected it once
# an endless alias
a: &x [*x]
=> a[0]: found an alias to a value that contains it, expected a value
# list as key
? [1]
: 2
=> found a list or an object as a field name in line 1, expected text
# false tag
a: !!int x
=> a: found the tag "tag:yaml.org,2002:int", expected plain YAML
# python tag
a: !!python/object/apply:os.system [x]
=> a: found the tag "tag:yaml.org,2002:python/object/apply:os.system", expected plain YAML
# set
a: !!set {x}
=> a: found the tag "tag:yaml.org,2002:set", expected plain YAML
# merged scalar
a: {<<: 1}
=> a.<<: found something else to merge, expected an object
# no YAML
a: b: c
=> found "mapping values are not allowed here" in line 1, column 5, expected one YAML or JSON document
# two documents
a: 1
---
b: 2
=> found "but found another document" in line 2, column 1, expected one YAML or JSON document
# half a character
a: "\ud800"
=> a: found half a character in "\ud800", expected text
"""


LIMITS = {
    "NUL": ("\0", "a character that YAML does not allow at position 0, expected one YAML or JSON document"),
    "too deep": ("[" * 65, '"more than 64 levels" in line 1, column 65, expected one YAML or JSON document'),
    "too long": (" " * (MAX_CHARS + 1), "1048577 characters, expected at most 1048576"),
}


@pytest.mark.parametrize(("text", "expected"), LIMITS.values(), ids=LIMITS)
def test_a_document_beyond_the_limits_is_one_line(text, expected):
    assert read(text)[1] == [f"f: found {expected}"]


@pytest.mark.parametrize(("text", "expected"), case_blocks(UNREADABLE))
def test_an_unreadable_document_is_one_line(text, expected):
    assert read(text)[1] == [f"f: {line}" for line in expected]


def test_of_a_repeated_field_the_first_is_kept():
    assert read("a: 1\na: 2")[0] == {"a": 1}


@pytest.mark.parametrize("opening", ["[{}]", "{{<<: [{}]}}"], ids=["lists", "merges"])
def test_an_alias_bomb_stops_at_the_limit(opening):
    names = "abcdefghijklmnop"
    rows = ["a: &a {x: 1}"]
    rows += [f"{n}: &{n} " + opening.format(", ".join([f"*{p}"] * 9)) for p, n in pairwise(names)]
    started_s = time.process_time()
    assert read("\n".join(rows))[1] == [
        "f: found more than 100000 values, expected fewer, aliases written out"
    ]
    assert time.process_time() - started_s < 5


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
    | st.sampled_from(
        ["1e3", "yes", "010", "<<", "~", "2001-01-01", "1:30", ".inf", "=", "", "0x1", "- a", "a: b"]
    )
)


@given(
    st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_a_written_document_reads_back(value):
    assert read(write_document(value)) == (value, [])


def test_infinity_survives():
    assert read(write_document({"a": math.inf, "b": -math.inf})) == ({"a": math.inf, "b": -math.inf}, [])
