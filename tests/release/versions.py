"""
The version, whose one truth is pyproject.toml, and the files that repeat it.

The chart has a version of its own besides, since it may change while the program does not.
"""

import re
from pathlib import Path

from tests.release.checkout import ReleaseError

#: Files that name the version of the program.
FILES = (
    "pyproject.toml",
    "Dockerfile",
    "README.md",
    "manifests/README.md",
    "manifests/base/deployment.yaml",
    "manifests/chart/Chart.yaml",
    "manifests/enforcer/README.md",
    "manifests/enforcer/deployment.yaml",
    "manifests/webhook/deployment.yaml",
)
CHART = "manifests/chart/Chart.yaml"
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_NAMED = re.compile(
    r'(^version = "|^ARG VERSION=|^appVersion: |newTag: |affinity-scheduler(?:-demo)?:)(\d+\.\d+\.\d+)',
    re.MULTILINE,
)
_OF_CHART = re.compile(r"(^version: )(\S+)", re.MULTILINE)


def checked(name: str, version: str) -> str:
    """Return the version. Raises: ReleaseError, which names the argument, unless it is MAJOR.MINOR.PATCH."""
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"{name}: found {version or 'nothing'}, expected MAJOR.MINOR.PATCH, such as 1.0.0")
    return version


def project_version(root: Path) -> str:
    """Return the version in pyproject.toml."""
    found = _NAMED.search((root / "pyproject.toml").read_text())
    if found is None:
        raise ReleaseError("pyproject.toml: found no version, expected version = with MAJOR.MINOR.PATCH")
    return found[2]


def chart_version(root: Path) -> str:
    """Return the version of the chart itself."""
    found = _OF_CHART.search((root / CHART).read_text())
    if found is None:
        raise ReleaseError(f"{CHART}: found no version, expected version: with MAJOR.MINOR.PATCH")
    return found[2]


def require_version(root: Path, version: str) -> None:
    """Raises: ReleaseError unless pyproject.toml, and every file that repeats it, have this version."""
    truth = project_version(root)
    if version != truth:
        raise ReleaseError(
            f"VERSION: found {version}, expected {truth} as in pyproject.toml; "
            f"`make version VERSION={version}` changes it"
        )
    for name in FILES:
        others = sorted({found[2] for found in _NAMED.finditer((root / name).read_text())} - {version})
        if others:
            raise ReleaseError(f"{name}: found version {others[0]}, expected {version} as in pyproject.toml")


def set_version(root: Path, version: str, of_chart: str) -> list[str]:
    """Write the versions of the program and of the chart into all files, and return the names of changed ones."""
    changed = []
    for name in FILES:
        text = (root / name).read_text()
        written = _NAMED.sub(rf"\g<1>{version}", text)
        if name == CHART:
            written = _OF_CHART.sub(rf"\g<1>{of_chart}", written)
        if written != text:
            (root / name).write_text(written)
            changed.append(name)
    return changed
