"""The kinds of runs of a night: share of the time, command, and the count in the output."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: How many allocations of devices a night compares, and in a second of its share.
_ALLOCATIONS: Final = 100_000
_ALLOCATIONS_PER_S: Final = 150
#: Arguments of Python for a seed and a number of seconds.
Command = Callable[[int, float], list[str]]


@dataclass(frozen=True, slots=True)
class Kind:
    """
    One kind of runs.

    Attributes:
        share: of the time, in proportion to the other kinds.
        command: of one process.
        counted: matches numbers of runs in its output, which are added; None counts the processes.
        repeats: whether it does one thing and ends, so that it is run again with the next seed until its time is over.
        least_s: it is left out where its share is shorter.
        weekly: whether it takes a week's night, of four hours, in the image's environment.
    """

    name: str
    share: float
    command: Command
    counted: re.Pattern[str] | None = None
    repeats: bool = False
    least_s: float = 0.0
    weekly: bool = False


def _chaos(*flags: str) -> Command:
    return lambda seed, seconds: [
        "-m", "tests.proof.chaos", "--seed", str(seed), "--seconds", f"{seconds:.0f}",
        "--shrink", f"{min(120.0, seconds):.0f}", *flags,
    ]  # fmt: skip


def _tests(*paths: str) -> Command:
    """Return the command that runs these tests with other examples for each seed."""
    return lambda seed, _: ["-m", "pytest", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}", *paths]


def _reference(seed: int, seconds: float) -> list[str]:
    """Compare with references; of allocations of devices as many as there is time for."""
    tests = _tests(
        "tests/engine/plugins/test_against_reference.py",
        "tests/engine/plugins/test_preemption.py",
        "tests/engine/plugins/test_relaxed.py",
        "tests/engine/plugins/dynamic_resources/test_allocator_against_reference.py",
        "tests/engine/state/test_random_states.py",
        "tests/engine/core/test_drawn_lives.py",
        "tests/engine/core/test_machine_lives.py",
        "tests/engine/queueing/test_queue_model.py",
    )
    n = max(1, min(_ALLOCATIONS, int(seconds * _ALLOCATIONS_PER_S)))
    return [*tests(seed, seconds), "--allocations", str(n)]


#: Blocks of seeds of each brute-force test in one process: about 20 s in all.
_BLOCKS: Final = 10


def _brute_force(seed: int, seconds: float) -> list[str]:
    """Compare searches for groups with brute force, by other seeds than the suite plays."""
    tests = _tests(
        "tests/engine/core/test_group_search.py",
        "tests/engine/core/test_group_preemption.py",
        "tests/engine/core/test_group_devices.py",
        "tests/engine/core/test_group_device_evictions.py",
    )
    return [*tests(seed, seconds), "-m", "drawn_seeds", "--lives", str(_BLOCKS)]


def _module(name: str, *flags: str) -> Command:
    return lambda seed, seconds: ["-m", name, "--seed", str(seed), "--seconds", f"{seconds:.0f}", *flags]


_RUNS: Final = re.compile(r"^(\d+) runs", re.MULTILINE)
#: The tests that pytest has run.
_TRIED: Final = re.compile(r"(\d+) (?:failed|passed)(?=.* in [\d.]+s)")

KINDS: Final = (
    Kind("chaos", 4, _chaos(), _RUNS),
    Kind("groups", 2, _chaos("--groups"), _RUNS),
    Kind("volumes", 1, _tests("tests/engine/core/test_reservation_lives.py", "tests/engine/plugins/test_volumes.py"),
        repeats=True),
    Kind("devices", 2, _chaos("--devices"), _RUNS),
    Kind("provisioning", 1, _chaos("--volumes"), _RUNS),
    Kind("upgrade", 2, _chaos("--exchange"), re.compile(r"^(\d+) exchanges", re.MULTILINE)),
    Kind("reference", 3, _reference, repeats=True),
    Kind("brute-force", 1, _brute_force, _TRIED, repeats=True),
    Kind("world", 1, _tests("tests/tools/explain/simulation/test_live.py"), repeats=True),
    Kind(
        "runbooks",
        1,
        _tests("--slow-runbooks", "tests/system/monitoring/test_tried_runbooks.py"),
        _TRIED,
        least_s=180,
    ),
    Kind("fuzz", 3, _module("tests.proof.fuzz"), re.compile(r"(\d+) inputs")),
    Kind("mutation", 6, _module("tests.proof.mutation"), re.compile(r"^(\d+) mutants", re.MULTILINE), least_s=900),
    # Its judgement begins once the bounded caches are full.
    Kind("soak", 1, lambda _, seconds: ["-m", "tests.proof.soak", "--seconds", f"{seconds:.0f}"], least_s=600,
        weekly=True),
    Kind("speed", 2, lambda *_: ["-m", "tests.bench", "--check"], least_s=600, weekly=True),
    Kind("holds", 1, lambda *_: ["-m", "tests.bench", "--holds", "--check"], least_s=600, weekly=True),
)  # fmt: skip
