"""Work that is done a bounded piece at a time, so that nobody has to wait for all of it."""

from collections import deque
from collections.abc import Iterator
from typing import Final

#: Steps of a piece. The dearest one moves a pod out of 20,000, 20 to 40 µs; asking the hints takes 10.
STEPS_AT_ONCE: Final = 100


class Steps:
    """
    Pieces of work in the order in which they were begun; each a generator that yields after every step.

    Whoever goes on with `go_on` until nothing is left, before anything else happens, gets what `finish` gives.
    """

    def __init__(self, at_once: int = STEPS_AT_ONCE) -> None:
        self._at_once = at_once
        self._works: deque[Iterator[None]] = deque()

    def __bool__(self) -> bool:
        """Whether something is left to do."""
        return bool(self._works)

    def begin(self, work: Iterator[None]) -> None:
        """The work is done, up to `at_once` steps of it; or, where other work is left, comes after that."""
        self._works.append(work)
        if len(self._works) == 1:
            self.go_on()

    def go_on(self) -> None:
        """Up to `at_once` steps further."""
        left = self._at_once
        while self._works:
            for _ in self._works[0]:
                left -= 1
                if not left:
                    return
            self._works.popleft()

    def finish(self) -> None:
        """Nothing is left to do. Cost: O(what is left)."""
        while self._works:
            self.go_on()
