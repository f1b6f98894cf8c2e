"""YAML and JSON as Kubernetes reads them."""

import math
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.daemon.settings.documents import MAX_CHARS, read_document, write_document
from scheduler.daemon.settings.problems import Problems


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


UNREADABLE = {
    "a repeated field": "a: 1\nb: 2\na: 3",
    "a repeated field in nested JSON": '{"p": [{"a": 1, "a": 1}]}',
    "an endless alias": "a: &x [*x]",
    "list as key": "? [1]\n: 2",
    "false tag": "a: !!int x",
    "python tag": "a: !!python/object/apply:os.system [x]",
    "set": "a: !!set {x}",
    "merged scalar": "a: {<<: 1}",
    "no YAML": "a: b: c",
    "two documents": "a: 1\n---\nb: 2",
    "half a character": r'a: "\ud800"',
    "NUL": "\0",
    "too deep": "[" * 65,
    "too long": " " * (MAX_CHARS + 1),
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_document_is_one_line(text, snapshot):
    (line,) = read(text)[1]
    assert line == snapshot


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
