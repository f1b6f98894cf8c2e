"""Random expressions have the value that Google's own implementation gives, where it is installed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.cel import CompileError, EvaluationError, device_variable
from tests.engine.cel.recordings import evaluated

cel = pytest.importorskip("cel_expr_python.cel")

ATTRIBUTES: dict[str, str | int] = {"model": "a100", "index": 3, "healthy": True, "zero": 0}
DEVICE = device_variable("d", ATTRIBUTES, {}, may_be_shared=False)
DATA = {"device": {"driver": "d", "attributes": {"d": ATTRIBUTES}}}
ENVIRONMENT = cel.NewEnv(variables={"device": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)})

FIELDS = st.sampled_from(["model", "index", "healthy", "zero", "none"]).map(
    'device.attributes["d"].{}'.format
)
INTS = st.one_of(st.integers(-5, 5).map(lambda value: f"({value})"), st.just("9223372036854775807"))
STRINGS = st.sampled_from(['"a100"', '""', '"x"', "device.driver"])


def ints(bools, inner):
    operators = st.sampled_from(["+", "-", "*", "/", "%"])
    return st.one_of(
        st.tuples(inner, operators, inner).map(lambda parts: "({} {} {})".format(*parts)),
        st.tuples(bools, inner, inner).map(lambda parts: "({} ? {} : {})".format(*parts)),
        STRINGS.map("size({})".format),
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}].size()"),
    )


THREE = "({0[0]} {0[1]} {0[2]})".format
ORDERS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
EQUALITY = st.sampled_from(["==", "!="])
INT_LISTS = st.lists(INTS, max_size=3).map(lambda items: f"[{', '.join(items)}]")


def comparisons(numbers):
    return st.one_of(
        st.tuples(numbers, ORDERS, numbers).map(THREE),
        st.tuples(STRINGS, ORDERS, STRINGS).map(THREE),
        st.tuples(FIELDS, EQUALITY, st.one_of(INTS, STRINGS)).map(THREE),
        st.tuples(FIELDS, st.sampled_from(["<", ">="]), INTS).map(THREE),
        st.tuples(STRINGS, st.sampled_from(["contains", "startsWith", "endsWith"]), STRINGS).map(
            "{0[0]}.{0[1]}({0[2]})".format
        ),
        st.tuples(INT_LISTS, st.sampled_from(["all", "exists", "exists_one"]), INTS).map(
            "{0[0]}.{0[1]}(x, 6 / x > {0[2]})".format
        ),
        st.tuples(INTS, st.just("in"), INT_LISTS).map(THREE),
        FIELDS.map("has({})".format),
    )


def logic(inner):
    return st.one_of(
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map("({0[0]} {0[1]} {0[2]})".format),
        inner.map("!({})".format),
    )


NUMBERS = st.recursive(INTS, lambda inner: ints(comparisons(INTS), inner), max_leaves=6)
BOOLS = st.recursive(comparisons(NUMBERS), logic, max_leaves=6)


@given(BOOLS)
@settings(deadline=None, max_examples=400)
def test_value_or_error_is_googles(expression):
    try:
        result = ENVIRONMENT.compile(expression).eval(data=DATA)
        expected = result.value() if result.type() == cel.Type.BOOL else None
    except Exception:  # noqa: BLE001 - the binding has no class of its own for failures
        expected = None
    ours = evaluated(expression, DEVICE)
    assert not isinstance(ours, CompileError)
    assert (None if isinstance(ours, EvaluationError) else ours) == expected
