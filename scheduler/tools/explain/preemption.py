"""Explains what preemption does for a pod that fits on no node: its victims, and the room for which it waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.cluster_view import ClusterView

_SHOWN: Final = 10


def preemption_notes(pod: Pod, error: FitError, view: ClusterView) -> Iterator[str]:
    """
    Yield the pods that would be evicted, or what the pod's nomination is about; and the room kept for other pods.

    Where preemption does not help, the error's message says why.
    """
    found = error.postfilter
    if found is not None and found.victims:
        victims = _listed([f"{victim.key} (priority {victim.priority})" for victim in found.victims])
        broken = (
            f", against a PodDisruptionBudget for {found.n_violations} of them" if found.n_violations else ""
        )
        yield f"preemption makes room on node {found.nominated_node_name}: it evicts {victims}{broken}"
    elif pod.nominated_node_name:
        yield _nomination_note(pod, error, view)
    kept = [
        f"{other.key} (priority {other.priority}) on node {view.nodes.name_of(row)}"
        for row, others in view.nominated_above(pod)
        if view.alive.item(row)
        for other in others
    ]
    if kept:
        yield f"room is kept for nominated pods: {_listed(kept)}"


def _nomination_note(pod: Pod, error: FitError, view: ClusterView) -> str:
    name = pod.nominated_node_name
    row = view.nodes.row_by_name.get(name)
    if row is None or not view.alive.item(row):
        return f"nominated to node {name}, which is gone"
    if error.postfilter is not None and error.postfilter.nominated_node_name is None:
        ending = [
            placed.pod.key
            for placed in view.state.placed_on(row)
            if placed.pod.terminating and view.is_lower(placed.pod, pod)
        ]
        if ending:
            return f"nominated to node {name}, where these pods end: {_listed(sorted(ending))}"
        return f"nominated to node {name}, where it does not fit"
    return f"nominated to node {name}, where it does not fit: its next attempt withdraws the nomination"


def _listed(texts: Sequence[str]) -> str:
    shown = list(texts[:_SHOWN])
    if n_more := len(texts) - len(shown):
        shown.append(f"{n_more} more")
    return ", ".join(shown)
