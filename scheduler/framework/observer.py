"""How the outside watches a decision without the decision knowing: a clock and counters live behind this protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from scheduler.framework.profile import Profile
from scheduler.framework.verdicts import Code

_Array = TypeVar("_Array")


class Observer(Protocol):
    """Called by `core.decide` around each extension point of each cycle."""

    def begin(self, profile: Profile) -> Profile:
        """A cycle starts. Returns the profile to run: the same plugins, possibly wrapped to be timed."""
        ...

    def enter(self, point: str) -> None:
        """All plugins of an extension point are about to run."""
        ...

    def leave(self, point: str, code: Code) -> None:
        """They have run, with this outcome."""
        ...

    def evaluated(self, plugin: str, point: str) -> None:
        """One plugin had work to do at one point: it did not skip."""
        ...

    def ask(
        self, plugin: str, point: str, again: Callable[[Sequence[int]], _Array], rows: Sequence[int]
    ) -> _Array:
        """`again(rows)`, the plugin's answer at one point where a decision is repeated; one more evaluation."""
        ...

    def end(self) -> None:
        """The decision is made, whatever it is."""
        ...


class Unobserved:
    """Nobody watches."""

    def begin(self, profile: Profile) -> Profile:
        """The profile as it is."""
        return profile

    def enter(self, point: str) -> None:
        """Nothing is recorded."""

    def leave(self, point: str, code: Code) -> None:
        """Nothing is recorded."""

    def evaluated(self, plugin: str, point: str) -> None:
        """Nothing is recorded."""

    def ask(
        self, plugin: str, point: str, again: Callable[[Sequence[int]], _Array], rows: Sequence[int]
    ) -> _Array:
        """The answer."""
        del plugin, point
        return again(rows)

    def end(self) -> None:
        """Nothing is recorded."""
