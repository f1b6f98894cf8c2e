"""The share of time after which a namespace's pods go behind others of equal priority."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """`namespace_share`: of all time, at most 1; 0 lets every namespace use all of it. See `NamespaceShares`."""

    namespace_share: float = 0.0


#: Upstream's, by which every namespace may use all of the time.
DEFAULT_POLICY: Final = QueuePolicy()
