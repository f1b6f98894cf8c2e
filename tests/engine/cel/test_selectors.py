"""The interface of selectors, and devices whose attributes have no value."""

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.engine.cel import CompileError, DeviceFields, EvaluationError, VersionText, compile_selector
from scheduler.engine.syntax.quantity import parse_quantity
from tests.engine.cel.recordings import evaluated


def test_names_without_a_domain_are_the_drivers():
    device = DeviceFields(
        "gpu.example.com",
        attributes={"model": "a100", "other.example.com/model": "b"},
        capacity={"memory": parse_quantity("40Gi"), "other.example.com/memory": parse_quantity("1")},
    )
    assert evaluated('device.attributes["gpu.example.com"].model == "a100"', device) is True
    assert evaluated('device.attributes["other.example.com"].model == "b"', device) is True
    is_large = 'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("39Gi"))'
    assert evaluated(is_large, device) is True


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (VersionText("1.2"), "parse semantic version: No Major.Minor.Patch elements found"),
        (VersionText("1.x.0"), 'parse semantic version: Invalid character(s) found in minor number "x"'),
        (None, "unsupported attribute value"),
    ],
)
def test_an_attribute_without_a_value_fails_every_selector(value, reason):
    device = DeviceFields("d", attributes={"a": "fine", "z/bad": value})
    assert evaluated("true", device) == EvaluationError(f"attribute z/bad: {reason}")


def test_a_function_of_lists_fails_on_what_is_none():
    device = DeviceFields("d", attributes={"index": 1})
    answer = evaluated('device.attributes["d"].index.distinct().size() == 1', device)
    assert answer == EvaluationError("no such overload: distinct(int)")


def test_selectors_of_one_expression_are_equal():
    assert compile_selector("device.driver == 'x'") == compile_selector("device.driver == 'x'")
    assert compile_selector("device.driver == 'x'") != compile_selector("device.driver == 'y'")


def test_a_result_that_is_no_bool_is_an_error_of_the_compiler():
    assert compile_selector("device.driver") == CompileError("must evaluate to bool, not string")


_NO_EXPRESSIONS = (
    "", "true && nosuch(1)", "device.driver = 'x'", "device[[1]] == 1", "device.nosuch == 1", "device.driver == 1",
    "[1, 'a'].size() == 2", "'a' + 'b' || true", "true || [?1].size() == 1", "true || {?'a': 'b'} == {}",
    "true || 'a'.optMap(x, x) == 'b'", "true || 1.or(2) == 1", "format()", "1.size() > 0",
)  # fmt: skip


def test_what_is_no_expression_is_refused_in_one_line(snapshot: SnapshotAssertion):
    refused = {text: compile_selector(text) for text in (*_NO_EXPRESSIONS, " " * 10240 + "true")}
    assert all(isinstance(each, CompileError) for each in refused.values())
    assert {text.strip(): str(each) for text, each in refused.items()} == snapshot
