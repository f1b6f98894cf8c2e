"""The ranks of members of a group: the index that their controllers give them, as label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The index of a pod's job or replica, and of the pod in it, by the controllers that write them: JobSet,
#: LeaderWorkerSet, Job and StatefulSet. Pods of the former two have labels of the latter two as well.
_LABELS: Final = (
    "jobset.sigs.k8s.io/job-global-index",
    "jobset.sigs.k8s.io/job-index",
    "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
)
#: Digits of an index that count.
_DIGITS: Final = 9

Rank = tuple[int, ...]


def rank_of(labels: Mapping[str, str]) -> Rank:
    """Return the rank of a pod with these labels, in the order of ranks; empty without an index."""
    texts = [labels.get(name, "") for name in _LABELS]
    if not any(texts):
        return ()
    return tuple(int(text[:_DIGITS]) if text.isascii() and text.isdigit() else -1 for text in texts)
