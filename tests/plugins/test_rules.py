"""The plugins decide as recorded, and as the edge cases of the rules say; what they count is recounted afterwards."""

from pathlib import Path

import pytest

from tests.cases.row import Row, differences
from tests.cases.rows import ALL
from tests.conformance.compare import decision_mismatches
from tests.conformance.product import ProductSubject
from tests.conformance.replay import answers
from tests.conformance.traces import Apply, Delete, Evaluate, Trace, read

DATA = Path(__file__).parent.parent / "data"
KINDS = ("affinity", "spread", "node", "mixed")


@pytest.mark.parametrize("row", ALL, ids=lambda row: f"{row.plugin} {row.id}")
def test_the_product_says_what_the_row_says(row: Row):
    subject = ProductSubject(row.config)
    for obj in row.objects:
        subject.apply(obj)
    assert differences(row, subject.evaluate(row.pod)) == []
    assert subject.differences() == []


def _every_fifth(kind: str) -> list[Trace]:
    records = list(read(DATA / f"{kind}.jsonl.gz"))[::5]
    return [record for record in records if isinstance(record, Trace)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_product_decides_as_recorded(kind: str):
    """One state, carried through a cluster's whole life, and recounted at its end."""
    found: list[str] = []
    for trace in _every_fifth(kind):
        subject, expected = ProductSubject(trace.config), iter(trace.expected)
        for op in trace.ops:
            match op:
                case Apply():
                    subject.apply(op.object)
                case Delete():
                    subject.delete(op.kind, op.namespace, op.name)
                case Evaluate():
                    mismatches = decision_mismatches(next(expected), subject.evaluate(op.object))
                    found += [f"{trace.name} {mismatch}" for mismatch in mismatches]
        found += [f"{trace.name} {difference}" for difference in subject.differences()]
    assert found == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_built_anew_decides_as_recorded(kind: str):
    found = [
        f"{place} {mismatch}"
        for trace in _every_fifth(kind)
        for place, mismatches in answers(trace, ProductSubject, fresh=True)
        for mismatch in mismatches
    ]
    assert found == []
