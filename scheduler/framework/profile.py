"""A profile: the plugins that one schedulerName runs, in order and weighted; checked when it is put together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from scheduler.framework.interface import FilterPlugin, PreEnqueuePlugin, Requeuer, ScorePlugin
from scheduler.framework.normalizing import MAX_NODE_SCORE


@dataclass(frozen=True, slots=True)
class Weighted:
    """A scoring plugin and what its scores are multiplied with."""

    plugin: ScorePlugin
    weight: int


@dataclass(frozen=True, slots=True)
class Profile:
    """
    One profile of the configuration, ready to run.

    `percentage_of_nodes_to_score` is 0 where all nodes are to be scored, which is our default.
    """

    scheduler_name: str
    filters: tuple[FilterPlugin, ...]
    scorers: tuple[Weighted, ...]
    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    percentage_of_nodes_to_score: int = 0
    #: The smallest integers that hold any sum of weighted scores: what is added up should stay in the caches.
    totals_dtype: np.dtype[np.signedinteger] = field(init=False)

    def __post_init__(self) -> None:
        # A weight may be negative; one number is left that no total is.
        most = MAX_NODE_SCORE * sum(abs(weighted.weight) for weighted in self.scorers) + 1
        object.__setattr__(self, "totals_dtype", np.result_type(np.int16, np.min_scalar_type(-most)))

    def requeuers(self) -> Iterator[Requeuer]:
        """Every plugin that can refuse a pod and names events that may lift the refusal, each once."""
        seen: set[str] = set()
        for plugin in (*self.pre_enqueue, *self.filters):
            if isinstance(plugin, Requeuer) and plugin.name not in seen:
                seen.add(plugin.name)
                yield plugin
