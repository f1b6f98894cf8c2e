"""
Fuzzes readers of untrusted input by coverage, with atheris.

    python -m tests.proof.fuzz [--seconds N] [--seed N] [--target NAME ...] [--input FILE]

An input that breaks a target, or takes more than twenty seconds or 2 GB, is written to `build/fuzz`, and a line says
how to repeat it. The exit code is 1 then.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.proof.fuzz.corpus import seeds_of

_FOLDER: Final = Path(__file__).parents[3] / "build" / "fuzz"
_LIMIT_S: Final = 20
_LIMIT_MB: Final = 2048
#: Longer inputs cost time and find nothing that shorter ones do not.
MAX_BYTES: Final = 8192
#: As libFuzzer prints it.
_N_INPUTS: Final = re.compile(r"number_of_executed_units: +(\d+)")
#: The targets' names, without loading the product, which has to be loaded instrumented.
NAMES: Final = (
    *("configuration", "pod", "review"),
    *("kubeconfig", "annotations", "manifest", "selector", "quantity", "cel", "watch", "question"),
)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.fuzz")
    parser.add_argument("--seconds", type=float, default=300.0, help="for all targets (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--input", type=Path, metavar="FILE", help="run one target with this input alone")
    args = parser.parse_args()
    if args.input is not None:
        return _repeat(args.target[0], args.input)
    if importlib.util.find_spec("atheris") is None:
        raise SystemExit(
            "atheris is not installed: pip install -e '.[dev,nightly]', where there is a wheel of it"
        )
    share_s = args.seconds / len(args.target)
    failed = [name for name in args.target if not _is_stood(name, args.seed, share_s)]
    print(f"{len(args.target)} targets, {len(failed)} failed")
    return 1 if failed else 0


def _repeat(name: str, path: Path) -> int:
    from tests.proof.fuzz.targets import TARGETS

    TARGETS[name](path.read_bytes())
    return 0


def _is_stood(name: str, seed: int, seconds: float) -> bool:
    """Return whether the target stood all inputs; they and what libFuzzer learned stay in the corpus of `build`."""
    corpus = _FOLDER / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for data in seeds_of(name):
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    broken = _FOLDER / f"{name}-broken"
    broken.unlink(missing_ok=True)
    options = [
        f"-seed={seed}", f"-max_total_time={max(1, int(seconds))}", f"-timeout={_LIMIT_S}",
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


if __name__ == "__main__":
    sys.exit(main())
