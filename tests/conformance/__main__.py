"""
`python -m tests.conformance FILE... [--fresh] [--subject NAME]`: compare decisions with recorded ones.

Prints a line for each mismatch and finally `E evaluations, M mismatches`.
Exit code: 0 if all agree, 1 if any differs, 2 on bad input.
"""

import argparse
import sys
from pathlib import Path

from scheduler.engine.model.wire import MalformedObjectError
from scheduler.errors import SettingsError
from scheduler.sandbox.devcluster.status import StatusError
from tests.conformance.replay import answers
from tests.conformance.subject import SUBJECTS
from tests.conformance.traces import Admission, BadInputError, read

#: A timeout of the recording says nothing about the pod.
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
    except (MalformedObjectError, SettingsError, StatusError) as error:
        print(f"{path}: {record.name}: found {str(error).splitlines()[0]}", file=sys.stderr)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
