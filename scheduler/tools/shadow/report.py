"""The report of `shadow`; its JSON is what `-o json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from scheduler.tools.explain.formats.explanation import Document, JsonStruct


class Cause(StrEnum):
    """Why the other scheduler's decision differs from ours, in the order of a report."""

    #: A filter refuses the node here, or none refuses what the other one reports.
    RULE = "rule"
    #: The node fits here, and another one has more points.
    SCORE = "score"
    #: It fits here with fewer points, and the other scheduler scores a sample that may have left out the best nodes.
    SAMPLING = "sampling"
    #: Proven: we would have decided the same with recent changes in another order, which no other race contradicts.
    RACE = "race"


class Difference(JsonStruct, frozen=True, kw_only=True):
    """
    One pod about which the schedulers disagree.

    `node`: the other's choice; empty for a pod that it leaves pending. `here`: one of the best nodes here; empty if
    none fits. `behind`: by how many points `node` is behind `here`. `plugin`: the one that adds most of them, or that
    refuses `node`.
    """

    namespace: str
    pod: str
    cause: Cause
    node: str
    here: str
    behind: int = 0
    plugin: str = ""
    explanation: str


class ShadowReport(Document, frozen=True, kw_only=True):
    """
    What was compared, and the differences; `n_more_differences` of them are left out.

    `n_bound`: binds compared. `n_alike`: binds to a node that is among the best here. `n_tied`: `n_alike` where another
    node is as good. `n_pending`: how often a pod or a group was left pending for new reasons,
    `n_same_reasons`: how often we would give the same. `n_unseen`: bound pods that are not compared: not seen pending
    before, or bound while a watch was interrupted. `schedulers_seen`: schedulerNames that pods have, `scheduler` and
    about ten others.
    """

    kind: str = "ShadowReport"
    scheduler: str
    n_bound: int
    n_alike: int
    n_tied: int
    n_pending: int
    n_same_reasons: int
    n_unseen: int
    causes: Mapping[Cause, int]
    differences: tuple[Difference, ...]
    n_more_differences: int
    schedulers_seen: tuple[str, ...]
