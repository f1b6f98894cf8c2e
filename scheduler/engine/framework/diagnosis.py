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
from typing import Any

import numpy as np

from scheduler.engine.framework.status import Code, NodeStatuses, Status
from scheduler.engine.model.object_writes import ObjectWrite
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Mask


@dataclass(frozen=True, slots=True)
class PluginRefusals:
    """The rows that one plugin was the first to refuse in a cycle, and its statuses."""

    plugin: str
    statuses: NodeStatuses
    rows: Mask


@dataclass(frozen=True, slots=True)
class PostFiltered:
    """
    What PostFilter did for a pod that fits on no node.

    `status`: a success, or the reasons that end the message. `nominated_node_name`: the pod's from now on, empty for
    none; None leaves its nomination. `victims`: pods to remove from that node, the most important first. `writes`: what
    is written now to help the pod.
    """

    status: Status
    nominated_node_name: str | None = None
    victims: tuple[Pod, ...] = ()
    writes: tuple[ObjectWrite[Any], ...] = ()


@dataclass(frozen=True, slots=True)
class FitError:
    """
    Why no node fits.

    `rejecting`: plugins whose events can make the pod schedulable. `prefilter`: the status of a PreFilter that rejected
    the pod; `per_node` is empty then. `postfilter`: None if PostFilter did not run.
    """

    n_nodes: int
    rejecting: frozenset[str]
    prefilter: Status | None = None
    per_node: tuple[PluginRefusals, ...] = field(default=())
    postfilter: PostFiltered | None = None

    def message(self) -> str:
        """Return the text of the PodScheduled condition and of the event."""
        postfilter = "" if self.postfilter is None else self.postfilter.status.message
        if self.prefilter is not None:
            text = f"0/{self.n_nodes} nodes are available: {self.prefilter.message}."
        else:
            text = fit_message(
                self.n_nodes, reason_counts((part.statuses, part.rows) for part in self.per_node)
            )
        return f"{text} {postfilter}" if postfilter else text

    def code_at(self, row: int) -> Code:
        """Return the code of the row's status; that of a node that was not asked is unresolvable."""
        if self.prefilter is not None:
            return self.prefilter.code
        for part in self.per_node:
            if part.rows.item(row) and (status := part.statuses.at(row)) is not None:
                return status.code
        return Code.UNSCHEDULABLE_AND_UNRESOLVABLE

    def unschedulable_rows(self, alive: Mask) -> Mask:
        """Return the rows whose refusal the removal of pods may lift."""
        if self.prefilter is not None:
            return alive & (self.prefilter.code is Code.UNSCHEDULABLE)
        rows = np.zeros_like(alive)
        for part in self.per_node:
            may_help = [False, *(status.code is Code.UNSCHEDULABLE for status in part.statuses.statuses)]
            rows |= part.rows & np.array(may_help)[part.statuses.codes]
        return rows


def fit_message(n_nodes: int, counts: Counter[str]) -> str:
    """Return the message of a pod that fits on none of the nodes. `counts`: the number of nodes by reason."""
    # Code point order of str equals byte order of UTF-8.
    entries = sorted(f"{n} {reason}" for reason, n in counts.items())
    return f"0/{n_nodes} nodes are available:" + (f" {', '.join(entries)}." if counts else "")


def reason_counts(parts: Iterable[tuple[NodeStatuses, Mask]]) -> Counter[str]:
    """Return the number of refused rows by reason; each part has its statuses and its rows."""
    counts: Counter[str] = Counter()
    for statuses, rows in parts:
        for status, n_nodes in statuses.counts(rows):
            for reason in status.reasons:
                counts[reason] += n_nodes
    return counts
