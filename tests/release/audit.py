"""
What `make audit` judges: the locked dependencies, their licences, their known vulnerabilities, and imports.

A check returns its findings, one line each. One that cannot be made says why: it is no finding unless `--strict`.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from tests.release.checkout import ReleaseError
from tests.release.locks import NAMES, Locked, declared, path_of, project, read_lock
from tests.release.sbom import image_packages
from tests.support.dockerfile import Dockerfile

#: Trove classifiers and other spellings -> SPDX.
_SPDX = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
#: A classifier beside others that names no licence.
_NO_LICENCE = "DFSG approved"


@dataclass(frozen=True)
class Outcome:
    """Findings of a check; `unchecked`: why it, or a part of it, could not be made."""

    findings: tuple[str, ...] = ()
    unchecked: str = ""


def audit(root: Path, *, is_strict: bool) -> int:
    """Print the outcome of every check, and return the exit code."""
    locks = {lock: read_lock(path_of(root, lock)) for lock in NAMES}
    wanted = [each for each in locks["ci"] if each.is_wanted()]
    allowed = set(project(root)["tool"]["affinity-scheduler"]["allowed-licences"])
    outcomes = {
        "locks": Outcome(tuple(lock_findings(root, locks))),
        "imports": Outcome(tuple(import_findings(root))),
        "licences": Outcome(tuple(licence_findings(installed_licences(), wanted, allowed))),
        "wheels": wheels(root),
        "vulnerabilities": vulnerabilities(wanted, image_packages(root)),
    }
    for name, outcome in outcomes.items():
        for finding in outcome.findings:
            print(f"{name}: {finding}")
        if outcome.unchecked:
            print(f"{name}: NOT CHECKED: {outcome.unchecked}")
        elif not outcome.findings:
            print(f"{name}: nothing found")
    n_findings = sum(len(each.findings) for each in outcomes.values())
    n_unchecked = sum(bool(each.unchecked) for each in outcomes.values())
    counts_as = "a failure, by --strict" if is_strict else "no failure without STRICT=1"
    print(
        f"audit: {len(locks['ci'])} locked packages, {n_findings} findings"
        + (f", {n_unchecked} checks not made ({counts_as})" if n_unchecked else "")
    )
    return 1 if n_findings or (n_unchecked and is_strict) else 0


def lock_findings(root: Path, locks: Mapping[str, Sequence[Locked]]) -> Iterator[str]:
    """Yield what is not pinned by version and hash, what a lock lacks, and where locks disagree."""
    in_ci = {(each.name, each.version) for each in locks["ci"]}
    for lock, packages in locks.items():
        versions: dict[str, list[str]] = {}
        for each in packages:
            if each.version is None:
                yield f"{lock}: {each.name}: found no exact version, expected =="
                continue
            versions.setdefault(each.name, []).append(each.version)
            if not each.hashes:
                yield f"{lock}: {each.name}: found no hash, expected one for each file"
            if (each.name, each.version) not in in_ci:
                yield f"{lock}: {each.name}: found {each.version}, expected the version of lock ci"
        for requirement in declared(root, lock):
            found = versions.get(canonicalize_name(requirement.name), [])
            if not all(requirement.specifier.contains(each) for each in found) or not found:
                has = " and ".join(found) or "nothing"
                yield f"{lock}: {requirement.name}: found {has}, expected {requirement.specifier or 'any version'}"


def import_findings(root: Path) -> list[str]:
    """
    Return the modules whose distribution is not declared, and dependencies that no module of the product imports.

    Raises: ReleaseError if deptry fails.
    """
    with tempfile.NamedTemporaryFile() as file:
        command = [sys.executable, "-m", "deptry", "scheduler", "--json-output", file.name]
        done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
        if done.returncode not in (0, 1):
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ReleaseError(f"deptry: found {said}, expected its findings")
        return [f"{each['module']}: {each['error']['message']}" for each in json.load(file)]


def installed_licences() -> dict[str, tuple[str, str]]:
    """Return version and licence of each distribution of this environment, by name, as pip-licenses tells them."""
    command = [sys.executable, "-m", "piplicenses", "--from=mixed", "--format=json", "--with-system"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ReleaseError(f"pip-licenses: found {said}, expected a list of licences")
    return {
        canonicalize_name(each["Name"]): (each["Version"], each["License"])
        for each in json.loads(done.stdout)
    }


def licence_findings(
    installed: Mapping[str, tuple[str, str]], wanted: Iterable[Locked], allowed: Set[str]
) -> Iterator[str]:
    """Yield packages with a licence that is not allowed, and those that are not installed as they are locked."""
    for package in wanted:
        version, licence = installed.get(package.name, ("nothing", ""))
        if version != package.version:
            yield f"{package.name}: found {version} installed, expected {package.version} as locked"
            continue
        if not _is_allowed(licence, allowed):
            yield f"{package.name}: found {licence or 'no licence'}, expected one of {', '.join(sorted(allowed))}"


def _is_allowed(licence: str, allowed: Set[str]) -> bool:
    """Return whether all licences joined by AND or by a semicolon are allowed, and one of those joined by OR."""
    parts = [part.strip() for part in licence.replace(";", " AND ").split(" AND ")]
    return all(
        any(_SPDX.get(each, each.strip("()")) in allowed for each in part.split(" OR "))
        for part in parts
        if part != _NO_LICENCE
    )


def wheels(root: Path) -> Outcome:
    """Return the packages of the image's lock that have no wheel for one of its platforms: it compiles nothing."""
    (python,) = (
        each.text.removeprefix("PYTHON=")
        for each in Dockerfile(root / "Dockerfile").globals
        if each.text.startswith("PYTHON=")
    )
    command = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--only-binary", ":all:"]
    command += ["--python-version", python, "--require-hashes", "--requirement", str(path_of(root, "image"))]
    findings = []
    for machine in ("x86_64", "aarch64"):
        platform = ["--python-platform", f"{machine}-manylinux_2_28"]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [*command, *platform, "--target", folder], capture_output=True, text=True, check=False
            )
        if done.returncode and (
            lacking := re.search(r"Because (\S+) has no (?:usable )?wheels", done.stderr)
        ):
            findings.append(
                f"{lacking[1]}: found no wheel for {machine}, expected one: the image compiles nothing"
            )
        elif done.returncode:
            return Outcome(tuple(findings), f"uv found no answer: {' '.join(done.stderr.split())[:200]}")
    return Outcome(tuple(findings))


def vulnerabilities(*environments: Iterable[Locked]) -> Outcome:
    """Return the known vulnerabilities of what is installed somewhere, by pip-audit and the database that it asks."""
    answers: list[Any] = []
    asked: set[str] = set()
    for packages in environments:
        lines = sorted({package.line for package in packages} - asked)
        asked.update(lines)
        done = _pip_audit(lines)
        try:
            answers += json.loads(done.stdout)["dependencies"]
        except json.JSONDecodeError:
            said = done.stderr.strip().splitlines() or ["no message"]
            return Outcome(unchecked=f"pip-audit reached no database: {said[-1][:200]}")
    return vulnerability_outcome(answers)


def _pip_audit(lines: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Ask about requirements without markers, which pip-audit judges by this machine: the image has another Python."""
    command = [sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip", "--format", "json"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        command += ["--progress-spinner", "off", "--timeout", "15", "--requirement", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def vulnerability_outcome(packages: Sequence[Mapping[str, Any]]) -> Outcome:
    """
    Return what pip-audit's answers say of packages.

    pip-audit reports success for packages that its database does not know; those are not checked.
    """
    findings = tuple(
        f"{each['name']} {each['version']}: found {flaw['id']}, "
        f"expected {' or '.join(flaw['fix_versions']) or 'another package: there is no fix'}"
        for each in packages
        for flaw in each.get("vulns", ())
    )
    unknown = [each["name"] for each in packages if "skip_reason" in each]
    if unknown or not packages:
        return Outcome(
            findings,
            f"the database knows {len(packages) - len(unknown)} of {len(packages)} packages, not "
            f"{', '.join(unknown[:3]) or 'any'}{', ...' if len(unknown) > 3 else ''}",
        )
    return Outcome(findings)
