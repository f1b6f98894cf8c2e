"""The programs that an exchange of releases starts: 0.1.0 from the repository's history, and this checkout."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import tarfile
import venv
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from pathlib import Path

from tests.support.forking import Forked, forked

_ROOT = Path(__file__).parents[3]
#: The last commit before the first entry of the changelog's unreleased section; no tag names it.
COMMIT_OF_0_1_0 = "f9bdef52746e8f01bac4e223a5090baeea837f12"
COMMIT_OF_1_0_0 = "8ad0be03372d62b2401ecc932e3f3a7c60f2f131"


@dataclass(frozen=True, slots=True)
class Release:
    """
    A program to start.

    Attributes:
        name: names its processes.
        python: runs it, as the module `scheduler`.
        folder: the working folder of its processes.
        knows_all: whether it places groups and pods with claims, and evicts.
    """

    name: str
    python: Path
    folder: Path
    knows_all: bool

    async def start(self, *arguments: str) -> Process | Forked:
        """Start a process of it, in whose environment no other release is found."""
        if self.python == CHECKOUT.python:
            return await forked("scheduler", *arguments, options=(), folder=self.folder)
        command = [str(self.python), "-m", "scheduler", *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return await asyncio.create_subprocess_exec(*command, stderr=PIPE, cwd=self.folder, env=environment)


CHECKOUT = Release("new", Path(sys.executable), _ROOT, knows_all=True)


def release_0_1_0() -> Release:
    """Return 0.1.0 in a virtual environment of its own under `build`, which is made if it is not there."""
    folder = _ROOT / "build" / "release-0.1.0"
    python = folder / "venv" / "bin" / "python"
    if not (folder / "installed").exists():
        archive = subprocess.run(
            ["git", "archive", COMMIT_OF_0_1_0], cwd=_ROOT, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder / "source", filter="data")
        venv.create(folder / "venv", clear=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, str(folder / "source")], check=True)
        (folder / "installed").touch()
    return Release("old", python, folder, knows_all=False)
