"""
Adapts the number of objects per list page to their size.

A pod may have 1.5 MB, and six times that as JSON if every character is escaped. A page of 500 such pods does not fit
into memory, and a scheduler whose list never completes sees no pods at all.
"""

from __future__ import annotations

from typing import Final

from scheduler.daemon.kube.requests import PAGE_LIMIT
from scheduler.daemon.kube.transport import BODY_LIMIT_BYTES, BODY_TOO_LONG
from scheduler.errors import ApiError

#: The limit shrinks and grows by this factor.
_FACTOR: Final = 8


class PageSize:
    """The limit of the next page of one collection."""

    def __init__(self) -> None:
        self.limit = PAGE_LIMIT

    def grow(self, n_bytes: int) -> None:
        """Raise the limit for the next page if this one, of `n_bytes`, was small."""
        if n_bytes * 2 * _FACTOR < BODY_LIMIT_BYTES:
            self.limit = min(PAGE_LIMIT, self.limit * _FACTOR)

    def shrink(self, error: ApiError) -> bool:
        """Lower the limit if the page was too long. Returns: True if the same page has to be requested again."""
        if error.reason != BODY_TOO_LONG or self.limit == 1:
            return False
        self.limit = max(1, self.limit // _FACTOR)
        return True
