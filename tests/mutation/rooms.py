"""Which modules are mutated, and which tests have to notice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: The tests of each room.
ROOMS: Final[Mapping[str, tuple[str, ...]]] = {
    "core": ("tests/core",),
    "plugins": ("tests/plugins", "tests/explain"),
    "queueing": ("tests/queueing",),
    # Plugins of others read the state through its read-only views.
    "state": ("tests/state", "tests/plugin"),
}
#: Rooms whose tests play the room as well. They are asked about a mutant that its own tests do not notice.
BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "core": ("plugins",),
    "plugins": ("core",),
    "queueing": ("core",),
    "state": ("core", "plugins"),
}


def modules_of(root: Path, room: str) -> list[str]:
    """Return the paths of the room's modules, sorted."""
    return sorted(str(path.relative_to(root)) for path in (root / "scheduler" / room).rglob("*.py"))


def room_of(path: str) -> str:
    """Return the room of a module."""
    return Path(path).parts[1]
