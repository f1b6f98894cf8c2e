"""The product and the reference decide as recorded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.product import ProductSubject
from tests.conformance.replay import answers
from tests.conformance.subject import ReferenceSubject, Subject
from tests.conformance.traces import Trace, read

_DATA = Path(__file__).parent.parent / "data"
_KINDS = ("affinity", "spread", "node", "mixed", "volumes", "preempt")


def _mismatches(trace: Trace, subject: Subject) -> Iterator[str]:
    for place, found in answers(trace, subject):
        yield from (f"{place} {mismatch}" for mismatch in found)
    if isinstance(subject, ProductSubject):
        yield from (f"{trace.name} {difference}" for difference in subject.differences())


@pytest.mark.parametrize("kind", _KINDS)
def test_the_product_decides_as_recorded(kind: str) -> None:
    """One state, through the whole trace, audited at its end."""
    traces = read(_DATA / f"{kind}.jsonl.gz")
    assert [found for trace in traces for found in _mismatches(trace, ProductSubject(trace.config))] == []


@pytest.mark.parametrize("kind", _KINDS)
def test_the_reference_decides_as_recorded(kind: str) -> None:
    """Every fifth trace, to stay quick: the product decides all of them, and equals the reference on drawn ones."""
    traces = list(read(_DATA / f"{kind}.jsonl.gz"))[::5]
    assert [found for trace in traces for found in _mismatches(trace, ReferenceSubject(trace.config))] == []
