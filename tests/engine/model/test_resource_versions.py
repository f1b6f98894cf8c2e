"""Which of two versions of an object is the older one."""

from __future__ import annotations

import pytest

from scheduler.engine.model.resource_versions import is_older


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        pytest.param("9", "10", True, id="numbers, not texts"),
        pytest.param("10", "10", False, id="equal"),
        pytest.param("9" * 5000, "1" + "0" * 5000, True, id="numbers without a limit"),
        pytest.param("abc", "abcd", False, id="texts have no order"),
        pytest.param("", "1", True, id="an object of a file, before it is written"),
        pytest.param("1", "x", False, id="a number and a text"),
    ],
)
def test_versions_are_numbers(version: str, than: str, *, older: bool) -> None:
    assert is_older(version, than) is older
    assert not (older and is_older(than, version))
