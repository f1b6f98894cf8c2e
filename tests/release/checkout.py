"""The commit that is released: whether the checkout is clean, the commit's time, and a copy of its files."""

import io
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class ReleaseError(Exception):
    """Input, or a checkout, of which no release can be made: exit code 2. The text is one line for the user."""


def commit_time_s(root: Path) -> int:
    """
    Return the Unix time of the checkout's commit, for SOURCE_DATE_EPOCH.

    Raises: ReleaseError if the folder is no checkout of git, or has files that differ from the commit.
    """
    changed = _git(root, "status", "--porcelain").decode().splitlines()
    if changed:
        raise ReleaseError(
            f"{root}: found {len(changed)} files that differ from the commit ({changed[0][3:]}), "
            "expected a clean checkout"
        )
    return int(_git(root, "log", "-1", "--format=%ct"))


def export(root: Path, folder: Path) -> None:
    """Write the files of the checkout's commit into a folder: nothing that lies beside them gets into a release."""
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", "--format=tar", "HEAD"))) as archive:
        archive.extractall(folder, filter="data")


def _git(root: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise ReleaseError(
            "git: found no such program, expected git, since a release is made of a commit"
        ) from error
    if done.returncode:
        said = done.stderr.decode().strip().splitlines() or ["no message"]
        raise ReleaseError(f"{root}: found {said[0]}, expected a checkout of git")
    return done.stdout
