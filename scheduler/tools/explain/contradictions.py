"""Names what no node has together, where each part alone is somewhere, such as a volume and the pod to be near."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

import numpy as np

from scheduler.engine.model.terms import ZONE_KEY
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.explain.inspection import Inspection

#: Zones, or else nodes, that are named; more are counted.
_NAMED: Final = 3


def contradictions(inspection: Inspection) -> Iterator[str]:
    """Yield a sentence for each two plugins that admit nodes, but none in common. O(nodes)."""
    view = inspection.context.view
    parts = [
        (told.admitted, admitted)
        for plugin, statuses in inspection.refusals
        if (told := inspection.explanations.get(plugin.name)) is not None
        and told.admitted
        and (admitted := view.alive & (statuses.codes == 0)).any()
    ]
    for (one, here), (other, there) in combinations(parts, 2):
        if not (here & there).any():
            yield f"no node has both {one} ({_places(here, view)}) and {other} ({_places(there, view)})"


def _places(rows: Mask, view: ClusterView) -> str:
    """Return the zones, if these are whole ones, else the nodes."""
    column = view.column(ZONE_KEY)
    ids = column.ids[: view.n_rows]
    zones = [value for value, number in column.id_by_value.items() if (rows & (ids == number)).any()]
    within = np.isin(ids, [column.id_by_value[zone] for zone in zones]) & view.alive
    if 0 < len(zones) <= _NAMED and np.array_equal(within, rows):
        return ", ".join(sorted(zones))
    names = sorted(view.nodes.name_of(row) for row in np.flatnonzero(rows).tolist())
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} nodes"
