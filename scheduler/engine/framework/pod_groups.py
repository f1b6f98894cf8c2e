"""What plugins tell the search for a group's places, besides what their filters do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from scheduler.engine.framework.interface import NodeFilter
from scheduler.engine.state.arrays import Amounts

#: The plugin that rejects pods whose group is not placed, by upstream's name.
GANG_SCHEDULING: Final = "GangScheduling"

#: More copies of a pod than any node takes.
_MANY: Final = 1 << 30


def most_copies(filters: Iterable[tuple[str, NodeFilter]], n_rows: int) -> Amounts:
    """Return the most copies of the pod that each row takes, as far as filters know: int64, shape (n_rows,)."""
    most: Amounts = np.full(n_rows, _MANY, dtype=np.int64)
    for _, node_filter in filters:
        if node_filter.copies is not None:
            np.minimum(most, node_filter.copies(), out=most)
    return most
