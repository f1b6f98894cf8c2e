"""
The arithmetic of a rollout: the next size of each replica set.

Source: pkg/controller/deployment/util/deployment_util.go (kubernetes 1.36).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from scheduler.sandbox.devcluster.kinds import JsonObject


def replicas(obj: JsonObject) -> int:
    """Return `spec.replicas`, 1 if it is absent."""
    wanted = obj["spec"].get("replicas")
    return 1 if wanted is None else int(wanted)


def status_count(obj: JsonObject, name: str) -> int:
    """Return a count of the object's status, 0 if it is absent."""
    return int((obj.get("status") or {}).get(name) or 0)


def wanted_total(replica_sets: Iterable[JsonObject]) -> int:
    """Return the sum of `spec.replicas`."""
    return sum(replicas(replica_set) for replica_set in replica_sets)


def is_rolling(deployment: JsonObject) -> bool:
    """Return True if the strategy is RollingUpdate, which is also the default."""
    return bool((deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")


def scaled(value: int | str | None, total: int, *, round_up: bool) -> int:
    """Return a count, or a percentage of `total`, as a count."""
    if isinstance(value, str):
        share = int(value.removesuffix("%")) * total / 100
        return math.ceil(share) if round_up else math.floor(share)
    return value or 0


def fenceposts(deployment: JsonObject) -> tuple[int, int]:
    """
    Return (maxSurge, maxUnavailable) as counts of pods; (0, 0) if the deployment does not roll.

    Surge rounds up, unavailability down; if both come to 0, one pod may be unavailable, or nothing would move.
    """
    if not is_rolling(deployment):
        return 0, 0
    total = replicas(deployment)
    limits = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    surge = scaled(limits.get("maxSurge", "25%"), total, round_up=True)
    unavailable = scaled(limits.get("maxUnavailable", "25%"), total, round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, total)


def new_size(deployment: JsonObject, replica_sets: Sequence[JsonObject], new: JsonObject) -> int:
    """Return how many pods `new`, one of `replica_sets`, may have now; at most the deployment's size."""
    if not is_rolling(deployment):
        return replicas(deployment)
    surge, _ = fenceposts(deployment)
    room = replicas(deployment) + surge - wanted_total(replica_sets)
    if room <= 0:
        return replicas(new)
    return replicas(new) + min(room, replicas(deployment) - replicas(new))
