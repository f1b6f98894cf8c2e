"""Long work done in bounded steps, so that it never holds the event loop for long."""

from collections import deque
from collections.abc import Iterator
from typing import Final

#: A unit is one question to hints or one move of a pod; a step takes about 1 ms.
UNITS_PER_STEP: Final = 100


class IncrementalWork:
    """Tasks in the order in which they were added; each is a generator that yields after every unit of work."""

    def __init__(self, units_per_step: int = UNITS_PER_STEP) -> None:
        self._units_per_step = units_per_step
        self._tasks: deque[Iterator[None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def add(self, task: Iterator[None]) -> None:
        """Append `task`; do its first step at once if nothing is before it."""
        self._tasks.append(task)
        if len(self._tasks) == 1:
            self.step()

    def step(self) -> None:
        """Do at most `units_per_step` units."""
        left = self._units_per_step
        while self._tasks:
            for _ in self._tasks[0]:
                left -= 1
                if not left:
                    return
            self._tasks.popleft()

    def finish(self) -> None:
        """Do all that is left."""
        while self._tasks:
            self.step()
