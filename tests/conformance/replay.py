"""Puts the questions of one trace to a subject and compares the answers."""

from collections.abc import Iterator

from tests.conformance.compare import Mismatch, decision_mismatches
from tests.conformance.subject import Subject
from tests.conformance.traces import Apply, Delete, Evaluate, Trace


def answers(trace: Trace, subject: Subject) -> Iterator[tuple[str, list[Mismatch]]]:
    """Yield a description of each question of a trace, and the mismatches of its answer."""
    expected = iter(enumerate(trace.expected))
    for op in trace.ops:
        match op:
            case Apply():
                subject.apply(op.object)
            case Delete():
                subject.delete(op.kind, op.namespace, op.name)
            case Evaluate():
                index, entry = next(expected)
                yield (
                    f"{trace.name} evaluate {index}",
                    decision_mismatches(entry, subject.evaluate(op.object)),
                )
    assert next(expected, None) is None, f"{trace.name} has more entries than questions"
