"""The interface of selectors, and devices whose attributes have no value."""

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.engine.cel import CompileError, EvaluationError, compile_selector
from tests.engine.cel.recordings import device_value, evaluated


def test_names_without_a_domain_are_the_drivers():
    device = device_value(
        "gpu.example.com",
        {
            "attributes": {"model": {"string": "a100"}, "other.example.com/model": {"string": "b"}},
            "capacity": {"memory": {"value": "40Gi"}, "other.example.com/memory": {"value": "1"}},
        },
    )
    assert evaluated('device.attributes["gpu.example.com"].model == "a100"', device) is True
    assert evaluated('device.attributes["other.example.com"].model == "b"', device) is True
    is_large = 'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("39Gi"))'
    assert evaluated(is_large, device) is True


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"version": "1.2"}, "parse semantic version: No Major.Minor.Patch elements found"),
        ({"version": "1.x.0"}, 'parse semantic version: Invalid character(s) found in minor number "x"'),
        ({}, "unsupported attribute value"),
    ],
)
def test_an_attribute_without_a_value_fails_every_selector(value, reason):
    device = device_value("d", {"attributes": {"z/bad": value, "a": {"string": "fine"}}})
    assert evaluated("true", device) == EvaluationError(f"attribute z/bad: {reason}")


def test_a_function_of_lists_fails_on_what_is_none():
    device = device_value("d", {"attributes": {"index": {"int": 1}}})
    answer = evaluated('device.attributes["d"].index.distinct().size() == 1', device)
    assert answer == EvaluationError("no such overload: distinct(int)")


@pytest.mark.parametrize(
    ("sign", "holds"), [("==", True), ("<=", True), (">=", True), ("<", False), (">", False)]
)
def test_times_are_compared_whatever_zone_they_are_written_in(sign: str, holds: bool):
    """Source: cel-go common/types/timestamp.go, Compare."""
    utc, berlin = 'timestamp("2026-01-01T00:00:00Z")', 'timestamp("2026-01-01T01:00:00+01:00")'
    assert evaluated(f"{utc} {sign} {berlin}", device_value("d", {})) is holds


def test_each_escape_stands_for_its_character():
    simple, hexadecimal = r"\a\b\f\n\r\t\v\\\'\"\`\?", r"\x07\x08\x0c\x0a\x0d\x09\x0b\x5c\x27\x22\x60\x3f"
    assert evaluated(f'"{simple}" == "{hexadecimal}"', device_value("d", {})) is True


def test_the_last_index_up_to_the_first_character_is_the_first():
    assert evaluated('"aba".lastIndexOf("a", 0) == 0', device_value("d", {})) is True


def test_a_result_that_is_no_bool_is_an_error_of_the_compiler():
    assert compile_selector("device.driver") == CompileError("must evaluate to bool, not string")


_NO_EXPRESSIONS = (
    "", "true && nosuch(1)", "device.driver = 'x'", "device[[1]] == 1", "device.nosuch == 1", "device.driver == 1",
    "[1, 'a'].size() == 2", "'a' + 'b' || true", "format()", "1.size() > 0",
)  # fmt: skip


def test_what_is_no_expression_is_refused_in_one_line(snapshot: SnapshotAssertion):
    refused = {text: compile_selector(text) for text in (*_NO_EXPRESSIONS, " " * 10240 + "true")}
    assert all(isinstance(each, CompileError) for each in refused.values())
    assert {text.strip(): str(each) for text, each in refused.items()} == snapshot
