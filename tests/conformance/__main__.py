"""
`python -m tests.conformance FILE... [--fresh] [--subject NAME]`: recorded decisions, asked again.

Prints a line for each mismatch and at last `E evaluations, M mismatches`.
Exit code: 0 where all agree, 1 where any differs, 2 on bad input.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.compare import Mismatch, admission_mismatches, decision_mismatches
from tests.conformance.subject import SUBJECTS, FreshSubject, SubjectFactory, admit
from tests.conformance.traces import Admission, Apply, BadInputError, Delete, Evaluate, Trace, read

#: A recording's own time-out says nothing about the pod.
_TIMED_OUT = 504


def main(argv: list[str]) -> int:
    """Run the command and return its exit code."""
    options = _options(argv)
    if options.subject not in SUBJECTS:
        print(f"--subject: found {options.subject}, expected one of {', '.join(SUBJECTS)}", file=sys.stderr)
        return 2
    n_evaluations = n_mismatches = n_timed_out = 0
    try:
        for path in options.files:
            for record in read(path):
                if isinstance(record, Admission) and (record.refused or {}).get("code") == _TIMED_OUT:
                    n_timed_out += 1
                    continue
                for place, found in answers(record, SUBJECTS[options.subject], fresh=options.fresh):
                    n_evaluations += 1
                    n_mismatches += len(found)
                    for mismatch in found:
                        print(f"{place} {mismatch}")
    except BadInputError as error:
        print(error, file=sys.stderr)
        return 2
    if n_timed_out:
        print(
            f"{n_timed_out} admissions timed out while being recorded and were not compared", file=sys.stderr
        )
    print(f"{n_evaluations} evaluations, {n_mismatches} mismatches")
    return 1 if n_mismatches else 0


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Asks recorded decisions of Kubernetes 1.36 again and compares.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="JSON lines, plain or gzipped")
    parser.add_argument("--fresh", action="store_true", help="rebuild the subject before every evaluation")
    parser.add_argument(
        "--subject", default="product", metavar="NAME", help="who is asked (default: product)"
    )
    return parser.parse_args(argv)


def answers(
    record: Trace | Admission, factory: SubjectFactory, *, fresh: bool
) -> Iterator[tuple[str, list[Mismatch]]]:
    """Each question of a record, as its place in words and the mismatches found there."""
    match record:
        case Trace():
            yield from _decisions(record, factory, fresh=fresh)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
