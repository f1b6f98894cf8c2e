"""How the outside watches a decision without the decision knowing: a clock and counters live behind this protocol."""

from __future__ import annotations

from typing import Protocol

from scheduler.framework.profile import Profile
from scheduler.framework.status import Code


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

    def end(self) -> None:
        """Nothing is recorded."""
