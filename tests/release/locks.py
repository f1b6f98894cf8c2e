"""
Lock files: exact versions with hashes of what pyproject.toml declares, in config/locks.

`make lock` writes them with uv, for all platforms and Python versions at once. All agree with `ci`, which has all.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tests.release.checkout import ReleaseError

FOLDER = "config/locks"
#: Extras of the project by lock; `build` has what a build of the wheel needs instead.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "ci": ("dev", "tls", "webhook", "speed"),
    "image": ("webhook",),
    "wheel": (),
}
BUILD = "build"
NAMES = (*EXTRAS, BUILD)
_COMPILE = (
    *("-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version=3.11", "--generate-hashes"),
    "--custom-compile-command=make lock",
)
_REQUIRED_BY = re.compile(r"^    #(?: via)? +(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Locked:
    """
    A package of a lock file.

    `version` is None if it is not exact. `required_by`: names of packages, and the project's own.
    """

    name: str
    version: str | None
    marker: Marker | None
    hashes: tuple[str, ...]
    required_by: frozenset[str]

    def is_wanted(self, environment: Mapping[str, str] | None = None) -> bool:
        """Return whether it is installed on this machine, or where these variables of markers are different."""
        return self.marker is None or self.marker.evaluate(dict(environment or {}))

    @property
    def line(self) -> str:
        """The requirement with its hashes and without its marker, as pip reads it."""
        return " ".join((f"{self.name}=={self.version}", *(f"--hash={each}" for each in self.hashes)))


def path_of(root: Path, lock: str) -> Path:
    """Return the file of a lock."""
    return root / FOLDER / f"{lock}.txt"


def read_lock(path: Path) -> list[Locked]:
    """Return the packages of a lock file. Raises: ReleaseError if it cannot be read as one."""
    entries = re.split(r"^(?=[A-Za-z0-9])", path.read_text(), flags=re.MULTILINE)[1:]
    return [_locked(entry, path.name) for entry in entries]


def _locked(entry: str, name: str) -> Locked:
    text, _, comments = entry.partition("    # via")
    words = text.replace("\\\n", " ").split(" --hash=")
    try:
        requirement = Requirement(words[0].strip())
    except InvalidRequirement as error:
        raise ReleaseError(f"{name}: found {words[0].strip()}, expected NAME==VERSION") from error
    exact = [
        each.version for each in requirement.specifier if each.operator == "==" and "*" not in each.version
    ]
    parents = (found.split(" (")[0].strip() for found in _REQUIRED_BY.findall(f"    # via{comments}"))
    return Locked(
        canonicalize_name(requirement.name),
        exact[0] if len(exact) == 1 and len(requirement.specifier) == 1 else None,
        requirement.marker,
        tuple(word.strip() for word in words[1:]),
        frozenset(each for each in parents if not each.startswith("-")),
    )


def project(root: Path) -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text())


def declared(root: Path, lock: str) -> list[Requirement]:
    """Return the requirements in pyproject.toml that a lock answers."""
    if lock == BUILD:
        return [Requirement(text) for text in project(root)["build-system"]["requires"]]
    return with_extras(root, EXTRAS[lock])


def with_extras(root: Path, extras: Iterable[str]) -> list[Requirement]:
    """Return the project's requirements with those of some extras, but not the project itself."""
    settings = project(root)["project"]
    extra_texts = [text for extra in extras for text in settings["optional-dependencies"][extra]]
    requirements = [Requirement(text) for text in (*settings["dependencies"], *extra_texts)]
    return [each for each in requirements if each.name != settings["name"]]


def write_locks(root: Path, arguments: Sequence[str]) -> None:
    """
    Write every lock file, `ci` first; versions that are locked stay, unless uv's arguments say otherwise.

    Raises: ReleaseError if uv cannot resolve them.
    """
    for lock in NAMES:
        target = path_of(root, lock)
        command = [sys.executable, *_COMPILE, f"--output-file={target.relative_to(root)}", *arguments]
        if lock != "ci":
            command.append(f"--constraint={FOLDER}/ci.txt")
        wanted = None
        if lock == BUILD:
            command.append("-")
            wanted = "\n".join(map(str, declared(root, lock)))
        else:
            command += ["pyproject.toml", *(f"--extra={extra}" for extra in EXTRAS[lock])]
        done = subprocess.run(command, cwd=root, input=wanted, capture_output=True, text=True, check=False)
        if done.returncode:
            said = " ".join(done.stderr.split())
            raise ReleaseError(f"{target.relative_to(root)}: found {said}, expected versions that agree")
