"""The survivors that no test can or should notice, each with the reason."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from tests.proof.mutation.mutants import Mutant

_FILE: Final = Path(__file__).with_name("explained.toml")


@cache
def explained() -> dict[str, dict[str, str]]:
    """Return the reasons that the file gives, by module and change; a change is told by its text, as lines move."""
    return msgspec.convert(tomllib.loads(_FILE.read_text()), dict[str, dict[str, str]])


def explanation_of(mutant: Mutant) -> str:
    """Return why the mutant may survive; empty if nothing explains it."""
    return explained().get(mutant.path, {}).get(change_of(mutant), "")


def change_of(mutant: Mutant) -> str:
    """Return the function and the change, without the line."""
    return f"{mutant.where}: {mutant.before}  ->  {mutant.after}"
