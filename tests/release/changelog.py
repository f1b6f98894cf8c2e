"""CHANGELOG.md: its sections, each under `## VERSION`, and first the unreleased one."""

import re

from tests.release.checkout import ReleaseError

UNRELEASED = "Unreleased"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def sections(text: str) -> dict[str, str]:
    """Return the text of each section by its heading, in order."""
    _, *parts = _HEADING.split(text)
    return {heading.strip(): body.strip() for heading, body in zip(parts[::2], parts[1::2], strict=True)}


def notes(text: str, version: str) -> str:
    """
    Return the release notes of a version.

    Raises: ReleaseError if it has no section, or if there are changes that belong to no version.
    """
    found = sections(text)
    if found.get(UNRELEASED):
        raise ReleaseError(
            f"CHANGELOG.md: found changes under {UNRELEASED}, expected none; "
            f"`make version VERSION={version}` puts them under {version}"
        )
    if not found.get(version):
        raise ReleaseError(f"CHANGELOG.md: found no section {version}, expected one with the release notes")
    return f"# affinity-scheduler {version}\n\n{found[version]}\n"


def close_unreleased(text: str, version: str) -> str:
    """Return the changelog with the unreleased changes as this version's, and an empty unreleased section before."""
    found = sections(text)
    if not found.get(UNRELEASED):
        raise ReleaseError(f"CHANGELOG.md: found no changes under {UNRELEASED}, expected those of {version}")
    if version in found:
        raise ReleaseError(f"CHANGELOG.md: found a section {version} already, expected none")
    return text.replace(f"## {UNRELEASED}\n", f"## {UNRELEASED}\n\n## {version}\n", 1)
