"""A drawn trace: what a room that trains sees, for replays without a file."""

from __future__ import annotations

import random
from typing import Final

from tests.proof.replay.trace import GPU_MILLI, TraceNode, TracePod

_N_NODES: Final = 128
_GPUS: Final = 8
_N_JOBS: Final = 240
#: Pods and GPUs of each pod of a job, and how many of a hundred jobs are so: most jobs are small, most GPUs are in the
#: large ones, as in the published traces.
_SIZES: Final = (
    (1, 1, 48),
    (1, 2, 12),
    (1, 4, 10),
    (1, 8, 8),
    (2, 8, 8),
    (4, 8, 7),
    (8, 8, 4),
    (16, 8, 2),
    (32, 8, 1),
)
_MEAN_GAP_S: Final = 45.0
_MEDIAN_RUN_S: Final = 1_200.0
_SPREAD_OF_RUNS: Final = 1.3


def drawn_trace(seed: int) -> tuple[list[TraceNode], list[TracePod]]:
    """Return 128 nodes with eight GPUs each, and jobs of up to 32 pods that ask for 0.8 of them on average."""
    rng = random.Random(seed)
    nodes = [TraceNode(f"n{index}", 96_000, 1_048_576, _GPUS) for index in range(_N_NODES)]
    pods, now_s = [], 0.0
    for number in range(_N_JOBS):
        now_s += rng.expovariate(1 / _MEAN_GAP_S)
        n_pods, gpus, _ = rng.choices(_SIZES, [share for *_, share in _SIZES])[0]
        pods.append(
            TracePod(
                name=f"p{number}",
                job=f"j{number}",
                replicas=n_pods,
                cpu_milli=10_000 * gpus,
                memory_mib=65_536 * gpus,
                gpu_milli=GPU_MILLI * gpus,
                models=frozenset(),
                created_s=round(now_s),
                duration_s=round(_MEDIAN_RUN_S * rng.lognormvariate(0.0, _SPREAD_OF_RUNS)),
            )
        )
    return nodes, pods
