"""Puts the questions of one record to a subject and compares the answers."""

from collections.abc import Iterator

from tests.conformance.compare import Mismatch, admission_mismatches, decision_mismatches
from tests.conformance.devices import life_answers
from tests.conformance.subject import FreshSubject, SubjectFactory, admit
from tests.conformance.traces import Admission, Apply, Delete, DeviceLife, Evaluate, Record, Trace


def answers(record: Record, factory: SubjectFactory, *, fresh: bool) -> Iterator[tuple[str, list[Mismatch]]]:
    """Yield a description of each question of a record, and the mismatches of its answer."""
    match record:
        case Trace():
            yield from _decisions(record, factory, fresh=fresh)
        case DeviceLife():
            yield from life_answers(record, fresh=fresh)
        case Admission():
            expected = {"stored": record.stored} if record.refused is None else {"refused": record.refused}
            yield record.name, admission_mismatches(expected, admit(record.pod))


def _decisions(trace: Trace, factory: SubjectFactory, *, fresh: bool) -> Iterator[tuple[str, list[Mismatch]]]:
    subject = FreshSubject(factory, trace.config) if fresh else factory(trace.config)
    expected = iter(trace.expected)
    index = 0
    for op in trace.ops:
        match op:
            case Apply():
                subject.apply(op.object)
            case Delete():
                subject.delete(op.kind, op.namespace, op.name)
            case Evaluate():
                yield (
                    f"{trace.name} evaluate {index}",
                    decision_mismatches(next(expected), subject.evaluate(op.object)),
                )
                index += 1
