"""
The result and the message of a pod that fits on no node.

Grammar of the message (framework/types.go, FitError.Error, kubernetes 1.36):

    "0/" N " nodes are available:" [ " " prefilter "." | " " entry *( ", " entry ) "." ] [ " " postfilter ]
    entry = count " " reason

A node adds 1 to each reason of its status, so counts may exceed N; entries are sorted bytewise as whole texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler.framework.status import NodeStatuses, Status
from scheduler.state.arrays import Mask


@dataclass(frozen=True, slots=True)
class PluginRefusals:
    """The rows that one plugin was the first to refuse in a cycle, and its statuses."""

    plugin: str
    statuses: NodeStatuses
    rows: Mask


@dataclass(frozen=True, slots=True)
class FitError:
    """
    Why no node fits.

    `rejecting`: plugins whose events can make the pod schedulable. `prefilter`: the status of a PreFilter that rejected
    the pod; `per_node` is empty then.
    """

    n_nodes: int
    rejecting: frozenset[str]
    prefilter: Status | None = None
    per_node: tuple[PluginRefusals, ...] = field(default=())

    def message(self, postfilter: str = "") -> str:
        """Return the text of the PodScheduled condition and of the event."""
        text = f"0/{self.n_nodes} nodes are available:"
        if self.prefilter is not None:
            text += f" {self.prefilter.message}."
        elif entries := _entries(reason_counts((part.statuses, part.rows) for part in self.per_node)):
            text += f" {', '.join(entries)}."
        return f"{text} {postfilter}" if postfilter else text


def reason_counts(parts: Iterable[tuple[NodeStatuses, Mask]]) -> Counter[str]:
    """Return the number of refused rows by reason; each part has its statuses and its rows. O(n_rows) per part."""
    counts: Counter[str] = Counter()
    for statuses, rows in parts:
        for status, n_nodes in statuses.counts(rows):
            for reason in status.reasons:
                counts[reason] += n_nodes
    return counts


def _entries(counts: Counter[str]) -> Iterable[str]:
    # Code point order of str equals byte order of UTF-8.
    return sorted(f"{n_nodes} {reason}" for reason, n_nodes in counts.items())
