"""No text raises, recurses or computes without bound."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.cel import CompileError, EvaluationError
from tests.engine.cel.recordings import device_value, evaluated, read_recording

DEVICE = device_value(
    "gpu.example.com",
    {
        "attributes": {
            "model": {"string": "a100"},
            "index": {"int": 3},
            "healthy": {"bool": True},
            "version": {"version": "1.2.3"},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    },
)

PIECES = sorted(
    {
        piece
        for name in ("cel", "cel_libraries")
        for line in read_recording(name).lines
        for piece in line["expression"].replace("(", " ( ").replace(")", " ) ").split(" ")
    }
)


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=100)
def test_any_text_is_answered(text):
    assert isinstance(evaluated(text, DEVICE), bool | EvaluationError | CompileError)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join))
@settings(deadline=None, max_examples=200)
def test_any_mix_of_real_expressions_is_answered(text):
    assert isinstance(evaluated(text, DEVICE), bool | EvaluationError | CompileError)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "[" * 5000,
        "{" * 5000,
        "f(" * 5000,
        "true ? true : " * 700 + "true",
        "1" + " + 1" * 2000,
        "device.attributes" + ".a" * 2000,
        "[1]" + ".map(x, x)" * 900,
        "(" * 40 + "1" + (" + 1" * 60 + ")") * 40,
    ],
)
def test_depth_is_bounded(text):
    answer = evaluated(text, DEVICE)
    assert isinstance(answer, CompileError)
    assert "nests deeper than" in answer.text


@pytest.mark.parametrize(
    "text",
    [
        "!" * 5001 + "false",
        "true" + " && true" * 1000,
        "false" + " || true" * 1000,
        "1" + "+1" * 140 + " == 141",
        "[,].size() + {,}.size() + [1,].size() == 1",
    ],
)
def test_what_upstream_does_not_nest_is_not_deep_and_a_comma_may_be_last(text):
    assert evaluated(text, DEVICE) is True
