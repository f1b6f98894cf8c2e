"""
Fuzzes readers of untrusted input: by coverage where atheris is installed, else by mutants that are drawn by seed.

    python -m tests.proof.fuzz [--seconds N] [--seed N] [--target NAME ...] [--input FILE]

An input that breaks a target, or takes more than five seconds of CPU or 2 GB, is written to `build/fuzz`, and a line
says how to repeat it. The exit code is 1 then.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.proof.fuzz.corpus import seeds_of
from tests.proof.fuzz.mutating import MAX_BYTES, drawn

_FOLDER: Final = Path(__file__).parents[3] / "build" / "fuzz"
_LIMIT_S: Final = 5
_LIMIT_MB: Final = 2048
#: As libFuzzer prints it.
_N_INPUTS: Final = re.compile(r"number_of_executed_units: +(\d+)")
#: The targets' names, without loading the product, which has to be loaded instrumented.
NAMES: Final = (
    "kubeconfig", "configuration", "annotations", "pod", "manifest", "selector", "quantity", "cel", "watch", "question",
    "review",
)  # fmt: skip


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.fuzz")
    parser.add_argument("--seconds", type=float, default=300.0, help="for all targets (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--input", type=Path, metavar="FILE", help="run one target with this input alone")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.input is not None:
        return _repeat(args.target[0], args.input)
    by_coverage = importlib.util.find_spec("atheris") is not None
    if args.inside:
        return _draw(args.target[0], args.seed, args.seconds)
    _FOLDER.mkdir(parents=True, exist_ok=True)
    play = _by_coverage if by_coverage else _by_seed
    share_s = args.seconds / len(args.target)
    failed = [name for name in args.target if not play(name, args.seed, share_s)]
    print(f"{len(args.target)} targets{' by coverage' if by_coverage else ''}, {len(failed)} failed")
    return 1 if failed else 0


def _repeat(name: str, path: Path) -> int:
    from tests.proof.fuzz.targets import TARGETS

    TARGETS[name](path.read_bytes())
    return 0


def _by_seed(name: str, seed: int, seconds: float) -> bool:
    """Return whether the target stood all inputs. They are drawn in a process of its own, which may be killed."""
    command = [sys.executable, "-m", "tests.proof.fuzz", "--inside", "--target", name, "--seed", str(seed)]
    done = subprocess.run([*command, "--seconds", str(seconds)], capture_output=True, text=True)
    return _told(name, done, _FOLDER / f"{name}-current")


def _draw(name: str, seed: int, seconds: float) -> int:
    from tests.proof.fuzz.targets import TARGETS

    current = _FOLDER / f"{name}-current"
    _limit_memory()
    until_s, n_inputs = time.monotonic() + seconds, 0
    for data in drawn(seeds_of(name), seed):
        n_inputs += 1
        current.write_bytes(data)
        signal.setitimer(signal.ITIMER_VIRTUAL, _LIMIT_S)  # unhandled, it ends this process
        TARGETS[name](data)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if time.monotonic() > until_s:
            break
    current.unlink()
    print(f"stat::number_of_executed_units: {n_inputs}")
    return 0


def _by_coverage(name: str, seed: int, seconds: float) -> bool:
    """Return whether the target stood all inputs; they and what libFuzzer learned stay in the corpus of `build`."""
    corpus = _FOLDER / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for data in seeds_of(name):
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    broken = _FOLDER / f"{name}-broken"
    broken.unlink(missing_ok=True)
    options = [
        f"-seed={seed}", f"-max_total_time={max(1, int(seconds))}", f"-timeout={_LIMIT_S * 4}",
        f"-rss_limit_mb={_LIMIT_MB}", f"-max_len={MAX_BYTES}", f"-exact_artifact_path={broken}", "-verbosity=0",
        "-print_final_stats=1",
    ]  # fmt: skip
    command = [sys.executable, "-m", "tests.proof.fuzz.coverage_guided", name, *options, str(corpus)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    return _told(name, done, broken)


def _told(name: str, done: subprocess.CompletedProcess[str], broken: Path) -> bool:
    if done.returncode == 0:
        n_inputs = _N_INPUTS.findall(done.stdout + done.stderr)
        print(f"{name}: {n_inputs[-1] if n_inputs else 0} inputs", flush=True)
        return True
    causes = [
        line for line in (done.stderr + done.stdout).splitlines() if "Error" in line or "libFuzzer" in line
    ]
    kept = broken
    if broken.exists():
        kept = _FOLDER / f"{name}-{hashlib.sha1(broken.read_bytes()).hexdigest()[:12]}"
        broken.rename(kept)
    print(f"{name}: {causes[-1][:300] if causes else f'exit code {done.returncode}: {done.stderr[-300:]!r}'}")
    print(f"  python -m tests.proof.fuzz --target {name} --input {os.path.relpath(kept)}", flush=True)
    return False


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT_MB << 20, _LIMIT_MB << 20))


if __name__ == "__main__":
    sys.exit(main())
