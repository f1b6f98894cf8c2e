"""The survivors that no test can or should notice, each with the reason."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import msgspec

from tests.mutation.mutants import Mutant

_FILE: Final = Path(__file__).with_name("explained.toml")


class Explained(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`change`: as in the line of the survivor, from its function on. It is told by its text, as lines move."""

    path: str
    change: str
    why: str


def explained() -> list[Explained]:
    """Return what the file explains."""
    rows = tomllib.loads(_FILE.read_text()).get("survivor", [])
    return msgspec.convert(rows, list[Explained])


def explanation_of(mutant: Mutant) -> str:
    """Return why the mutant may survive; empty if nothing explains it."""
    return next((row.why for row in explained() if _is_of(row, mutant)), "")


def _is_of(row: Explained, mutant: Mutant) -> bool:
    return row.path == mutant.path and row.change == change_of(mutant)


def change_of(mutant: Mutant) -> str:
    """Return the function and the change, without the line."""
    return f"{mutant.where}: {mutant.before}  ->  {mutant.after}"
