"""
How many objects a page of a list has: as many as usual, fewer where they are large.

Anybody may write pods of 1.5 MB, which are six times that as JSON where every character is escaped. A page of 500 such
would not fit into memory, and a list that is never read to its end leaves a scheduler blind.
"""

from __future__ import annotations

from typing import Final

from scheduler.errors import ApiError
from scheduler.kube.calls import BODY_LIMIT_BYTES, BODY_TOO_LONG
from scheduler.kube.requests import PAGE_LIMIT

_STEP: Final = 8


class PageSize:
    """The limit of the next page of one collection."""

    def __init__(self) -> None:
        """As usual."""
        self.limit = PAGE_LIMIT

    def fitted(self, n_bytes: int) -> None:
        """A page of so many bytes came; where it was short, the next may have more."""
        if n_bytes * 2 * _STEP < BODY_LIMIT_BYTES:
            self.limit = min(PAGE_LIMIT, self.limit * _STEP)

    def shrinks(self, error: ApiError) -> bool:
        """Whether the same page is to be asked for again, with fewer objects: it was too long with so many."""
        if error.reason != BODY_TOO_LONG or self.limit == 1:
            return False
        self.limit = max(1, self.limit // _STEP)
        return True
