"""No expression that selects devices takes longer than its steps, whatever an API server lets through."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from scheduler.engine.cel import (
    MAX_STEPS,
    CompiledSelector,
    EvaluationError,
    compile_selector,
    device_variable,
)
from tests.proof.hostile.expressions import ENDLESS, LARGE

#: 50 ns a step on a machine of today, and so much for one that is busy or slow.
_MOST_S = MAX_STEPS * 50e-9 * 4
_MOST_BYTES = 80 * 2**20
_DEVICE = device_variable("gpu.example.com", {"index": 3}, {}, may_be_shared=False)
_TOO_COSTLY = EvaluationError("operation cancelled: actual cost limit exceeded")


@pytest.mark.parametrize("what", ENDLESS)
def test_an_expression_without_end_is_refused_in_time(what: str) -> None:
    begin_s = time.process_time()
    selector = compile_selector(ENDLESS[what])
    assert isinstance(selector, CompiledSelector)
    assert selector.evaluate(_DEVICE) == (_TOO_COSTLY, MAX_STEPS + 1)
    assert time.process_time() - begin_s < _MOST_S


@pytest.mark.parametrize("what", LARGE)
def test_large_values_are_paid_for(what: str) -> None:
    begin_s = time.process_time()
    selector = compile_selector(LARGE[what])
    if isinstance(selector, CompiledSelector):
        assert selector.evaluate(_DEVICE)[1] <= MAX_STEPS + 1
    assert time.process_time() - begin_s < _MOST_S


@pytest.mark.parametrize(
    "what", ["doubles a text", "doubles a list", "a list for each of many", "joins long texts"]
)
def test_steps_are_spent_before_memory_is_taken(what: str) -> None:
    selector = compile_selector(ENDLESS[what])
    assert isinstance(selector, CompiledSelector)
    tracemalloc.start()
    selector.evaluate(_DEVICE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < _MOST_BYTES


def test_what_an_expression_keeps_is_counted() -> None:
    """Or a thousand patterns of a MiB would be kept."""
    plain, large = compile_selector("true"), compile_selector('device.driver.matches("x{0,1000}y")')
    assert isinstance(plain, CompiledSelector)
    assert isinstance(large, CompiledSelector)
    assert plain.nbytes < 4000
    assert large.nbytes > 50_000
