"""
Fails each test that passed and executed no assertion, neither its own nor one of tests/support:

    python -m pytest -p tests.support.counting -o enable_assertion_pass_hook=true FILE ...
"""

from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.assertion import util

_SUPPORT = Path(__file__).parent
pytest.register_assert_rewrite(
    *(f"tests.{path.stem}" for path in _SUPPORT.parent.iterdir() if path != _SUPPORT),
    *(f"tests.support.{path.stem}" for path in _SUPPORT.iterdir() if path != Path(__file__)),
)

_n_passed: Counter[str] = Counter()


def pytest_assertion_pass(item: pytest.Item) -> None:
    """Count an assertion that held."""
    _n_passed[item.nodeid] += 1


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """
    Explain no comparison, as pytest does here also of one that held: it compares again, and a snapshot takes that for
    the next one.

    Innermost, since pytest's own wrapper sets how comparisons are explained, and puts it back.
    """
    util._reprcompare = None
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a test that passed without an assertion into one that failed; `pytest.raises` counts as one."""
    report = yield
    source = getattr(getattr(item, "function", None), "__code__", None)
    raises = source is not None and "raises" in source.co_names
    if call.when == "call" and report.passed and not _n_passed[item.nodeid] and not raises:
        report.outcome = "failed"
        report.longrepr = "it passed without an assertion"
    return report
