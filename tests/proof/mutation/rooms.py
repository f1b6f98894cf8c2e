"""Which modules are mutated, and which tests have to notice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: Rooms whose modules are mutated.
ROOMS: Final = ("core", "plugins", "queueing", "state")
#: The tests of each room; those of `conformance` play recorded decisions of the real kube-scheduler.
TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "conformance": ("tests/conformance",),
    "core": ("tests/engine/core",),
    "plugins": ("tests/engine/plugins", "tests/tools/explain"),
    "queueing": ("tests/engine/queueing",),
    # Plugins of others read the state through its read-only views.
    "state": ("tests/engine/state", "tests/sdk/plugin"),
}
#: Tests that play the room as well. They are asked about a mutant that its own tests do not notice.
BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "core": ("conformance", "plugins"),
    "plugins": ("conformance", "core"),
    "queueing": ("core",),
    "state": ("conformance", "core", "plugins"),
}


def modules_of(root: Path, room: str) -> list[str]:
    """Return the paths of the room's modules, sorted."""
    return sorted(
        str(path.relative_to(root)) for path in (root / "scheduler" / "engine" / room).rglob("*.py")
    )


def room_of(path: str) -> str:
    """Return the room of a module."""
    return Path(path).parts[2]
