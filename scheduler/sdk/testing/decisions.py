"""The answers of a `Cluster`: what was decided, why, and where replicas would go."""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.formats.table import table_lines
from scheduler.tools.explain.formats.terminal import Style
from scheduler.tools.explain.report import report_lines

Row = Mapping[str, Any]


class Table(Sequence[Row]):
    """Rows with the same columns, in order. `str()` is an aligned text."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Row]) -> None:
        self.columns = tuple(columns)
        self.rows = list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - as Sequence's
        return self.rows[index]

    def __str__(self) -> str:
        cells = [["" if row.get(name) is None else row[name] for name in self.columns] for row in self.rows]
        return "\n".join(table_lines([name.upper() for name in self.columns], cells, indent=""))

    __repr__ = __str__

    def frame(self) -> Any:  # noqa: ANN401 - pandas is optional
        """Return the table as a pandas DataFrame. Raises ImportError, which says what to install."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise ImportError("frame() needs pandas: pip install pandas; rows are in .rows") from error
        return pandas.DataFrame(self.rows, columns=list(self.columns))


@dataclass(frozen=True)
class Decision:
    """
    One decision.

    Attributes:
        node: the chosen node, None if there is none.
        message: the text of the event of a pod that was not scheduled, '' otherwise.
        refused: the reason of each node that a filter refused.
        refused_by: the plugin that refused each of them.
        scores: of each feasible node, the points of each plugin before weights; empty if it is the only one.
        totals: of each feasible node, the sum of the weighted points.
        weights: the weight of each plugin that scored.
        error: whether the cycle failed, so that the pod is tried again.
    """

    node: str | None
    message: str
    refused: Mapping[str, str]
    refused_by: Mapping[str, str]
    scores: Mapping[str, Mapping[str, int]]
    totals: Mapping[str, int]
    weights: Mapping[str, int]
    error: bool = False

    @property
    def feasible(self) -> tuple[str, ...]:
        """The nodes that fit, the best first."""
        return tuple(self.totals)

    @cached_property
    def table(self) -> Table:
        """One row per node: the best first, then the refused ones."""
        plugins = tuple(self.weights)
        rows = [
            {"node": node, "total": total, **self.scores.get(node, {}), "refused_by": "", "reason": ""}
            for node, total in self.totals.items()
        ]
        rows += [
            {"node": node, "refused_by": self.refused_by[node], "reason": reason}
            for node, reason in self.refused.items()
        ]
        return Table(("node", "total", *plugins, "refused_by", "reason"), rows)

    def __str__(self) -> str:
        return self.message or f"{self.node}, the best of {len(self.totals)} nodes"


@dataclass(frozen=True)
class Explained:
    """The explanation that `affinity-scheduler explain` gives; `str()` is its text."""

    explanation: Explanation

    def __str__(self) -> str:
        return "\n".join(report_lines(self.explanation, Style(io.StringIO(), {}, is_wide=True)))

    __repr__ = __str__


@dataclass(frozen=True)
class Simulated:
    """
    Where replicas would go, one after the other.

    Attributes:
        n_replicas: the number asked for.
        nodes: the node of each replica that was placed, in order.
        zone_by_node: the zone of each of these nodes, '' if it has none.
        next: why the next replica does not fit; None if all fit.
    """

    n_replicas: int
    nodes: tuple[str, ...]
    zone_by_node: Mapping[str, str]
    next: Explained | None

    @cached_property
    def table(self) -> Table:
        """One row per node that got a replica, in the order of its first."""
        rows = [
            {"node": node, "zone": self.zone_by_node[node], "replicas": self.nodes.count(node)}
            for node in dict.fromkeys(self.nodes)
        ]
        return Table(("node", "zone", "replicas"), rows)

    def __str__(self) -> str:
        text = f"{len(self.nodes)} of {self.n_replicas} replicas fit"
        return text if self.next is None else f"{text}; {self.next.explanation.message}"
