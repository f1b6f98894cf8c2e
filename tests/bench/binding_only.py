"""
`python -m tests.bench.binding_only run ...`: our process with a decision that takes the next node in turn.

It reads, binds, writes events and keeps its counts as always, and thinks nothing: no scheduler on this path is faster.
"""

from __future__ import annotations

import sys
from itertools import count

import numpy as np

from scheduler.cli.main import main
from scheduler.core import machine
from scheduler.core.decide import Decision, ScheduleResult
from scheduler.core.node_scores import FilterResult, NodeScores
from scheduler.framework.interface import FeasibleNodes, Rng
from scheduler.framework.observer import Observer
from scheduler.framework.profile import Profile
from scheduler.model.pods import Pod
from scheduler.state.cluster_view import ClusterView

_TURN = count()


def next_node(pod: Pod, view: ClusterView, profile: Profile, rng: Rng, observer: Observer) -> Decision:
    """Return the next row's node, whatever the pod asks for."""
    del pod, rng
    observer.begin(profile)
    row = next(_TURN) % view.n_rows
    alone = np.zeros(view.n_rows, dtype=np.bool_)
    alone[row] = True
    scores = NodeScores(
        row, FeasibleNodes(alone), np.zeros(view.n_rows, dtype=np.int64), (), FilterResult(), ()
    )
    observer.end()
    return ScheduleResult(view.nodes.name_of(row), view.n_nodes, 1, scores)


if __name__ == "__main__":
    setattr(machine, "decide", next_node)  # noqa: B010 - what the module imports is not its own to mypy
    sys.exit(main(sys.argv[1:]))
