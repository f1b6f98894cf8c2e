"""How metrics observe decisions. The implementation has the clock and the counters."""

from __future__ import annotations

from typing import Final

from scheduler.engine.framework.profile import Profile
from scheduler.engine.framework.status import Code


class Observer:
    """Called by `engine.core.decide` around each extension point of each cycle; here it does nothing."""

    def begin(self, profile: Profile) -> Profile:
        """Note that a cycle starts. Return the profile to run: the same plugins, possibly wrapped to time them."""
        return profile

    def enter(self, point: str) -> None:
        """Note that the plugins of an extension point are about to run."""

    def leave(self, point: str, code: Code) -> None:
        """Note that the plugins of the point have run, with this code."""

    def evaluated(self, plugin: str, point: str) -> None:
        """Count a plugin that did not skip the point."""

    def end(self) -> None:
        """Note that the decision is made."""


#: The observer of decisions without metrics.
UNOBSERVED: Final = Observer()
