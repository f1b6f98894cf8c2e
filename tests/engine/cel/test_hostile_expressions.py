"""No text raises, recurses or computes without bound."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.cel import (
    CompileError,
    DeviceFields,
    EvaluationError,
    Selector,
    Version,
    compile_selector,
)
from scheduler.engine.cel.plans import COST_LIMIT, Frame
from scheduler.engine.syntax.quantity import parse_quantity
from tests.engine.cel.recordings import DATA, read_recording

DEVICE = DeviceFields(
    "gpu.example.com",
    attributes={"model": "a100", "index": 3, "healthy": True, "version": Version("1.2.3")},
    capacity={"memory": parse_quantity("40Gi")},
)
TOO_COSTLY = EvaluationError("operation cancelled: actual cost limit exceeded")

PIECES = sorted(
    {
        piece
        for name in ("cel", "cel_libraries")
        if (DATA / f"{name}.jsonl.gz").exists()
        for line in read_recording(name).lines
        for piece in line["expression"].replace("(", " ( ").replace(")", " ) ").split(" ")
    }
)


def evaluate(text: str) -> bool | EvaluationError | CompileError:
    selector = compile_selector(text)
    return selector.matches(DEVICE) if isinstance(selector, Selector) else selector


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=300)
def test_any_text_is_answered(text):
    assert isinstance(evaluate(text), bool | EvaluationError | CompileError)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join))
@settings(deadline=None, max_examples=600)
def test_any_mix_of_real_expressions_is_answered(text):
    assert isinstance(evaluate(text), bool | EvaluationError | CompileError)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "[" * 5000,
        "{" * 5000,
        "f(" * 5000,
        "true ? true : " * 5000 + "true",
        "1" + " + 1" * 5000,
        "device" + ".a" * 5000,
        "[1]" + ".map(x, x)" * 5000,
        "(" * 40 + "1" + (" + 1" * 100 + ")") * 40,
        "optional.of(1)" + ".optMap(x, x)" * 50,
    ],
)
def test_depth_is_bounded(text):
    answer = evaluate(text)
    assert isinstance(answer, CompileError)
    assert "recursion limit exceeded" in answer.text or "nested too deeply" in answer.text


@pytest.mark.parametrize(
    "text",
    [
        "!" * 5001 + "false",
        "true" + " && true" * 2000,
        "false" + " || true" * 2000,
        "1" + "+1" * 140 + " == 141",
    ],
)
def test_what_upstream_does_not_nest_is_not_deep(text):
    assert evaluate(text) is True


TEN = "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"
SHARED = "".join(
    f"cel.bind({inner}, [{', '.join([outer] * 10)}], "
    for outer, inner in zip("abcdef", "bcdefg", strict=True)
)
LONG = '"' + "ab" * 2000 + '"'


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{TEN}.all(x{depth}, " for depth in range(10)) + "true" + ")" * 10,
        f"cel.bind(a, {TEN}, {SHARED} g == g" + ")" * 7,
        f"cel.bind(a, {TEN}, {SHARED} g in [g]" + ")" * 7,
        f'cel.bind(a, {TEN}, {SHARED} "%s".format([g]) == ""' + ")" * 7,
        "cel.bind(a0, [1], "
        + "".join(f"cel.bind(a{i + 1}, a{i} + a{i}, " for i in range(40))
        + "a40.size() > 0"
        + ")" * 41,
        'cel.bind(a0, "a", '
        + "".join(f"cel.bind(a{i + 1}, a{i} + a{i}, " for i in range(40))
        + "a40.size() > 0"
        + ")" * 41,
        f'cel.bind(a, {LONG}, cel.bind(b, a.replace("", a), b.replace("", b) == ""))',
        f"cel.bind(a, {LONG}.split(''), cel.bind(b, a + a, b.map(x, {LONG}).join() == ''))",
        "lists.range(1000000).size() > 0",
        "lists.range(20000).distinct().size() > 0",
        f'lists.range(10000).all(x, {LONG}.matches("(a|b)*a(a|b){{400}}c") || true)',
        'lists.range(100000).all(x, "a".matches(string(x) + "a{900}") || true)',
    ],
)
def test_work_is_bounded(text):
    assert evaluate(text) == TOO_COSTLY


def test_an_evil_regular_expression_is_read_in_one_pass():
    selector = compile_selector(
        f'"{"a" * 5000}".matches("^(a|aa|a*)*$") && "{"a" * 5000}!".matches("^(a+)+$")'
    )
    assert isinstance(selector, Selector)
    frame = Frame(DEVICE.variable, 0)
    assert selector.matches(DEVICE) is False
    assert selector._run(frame) is False
    assert frame.cost < COST_LIMIT / 100
