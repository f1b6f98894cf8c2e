"""
The arithmetic of a rollout: how many pods each replica set may have next.

Source: pkg/controller/deployment: util/deployment_util.go, sync.go (kubernetes 1.36).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.devcluster.controllers.copies import replaced
from scheduler.devcluster.kinds import JsonObject

DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"


def replicas(obj: JsonObject) -> int:
    """`spec.replicas`, 1 where it is not said."""
    wanted = obj["spec"].get("replicas")
    return 1 if wanted is None else int(wanted)


def status_count(obj: JsonObject, name: str) -> int:
    """A count of the object's status, 0 where it is not said."""
    return int((obj.get("status") or {}).get(name) or 0)


def wanted_total(replica_sets: Iterable[JsonObject]) -> int:
    """The sum of `spec.replicas`."""
    return sum(replicas(replica_set) for replica_set in replica_sets)


def is_rolling(deployment: JsonObject) -> bool:
    """Whether the strategy is RollingUpdate, which is also the default."""
    return bool((deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")


def scaled(value: int | str | None, total: int, *, round_up: bool) -> int:
    """A count or a percentage of `total`, as a count."""
    if isinstance(value, str):
        share = int(value.removesuffix("%")) * total / 100
        return math.ceil(share) if round_up else math.floor(share)
    return value or 0


def fenceposts(deployment: JsonObject) -> tuple[int, int]:
    """
    (maxSurge, maxUnavailable) as counts of this deployment's size; (0, 0) where it does not roll.

    Surge rounds up, unavailability down; where both come to 0, one pod may be unavailable, or nothing moves.
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
    """How many pods `new`, one of `replica_sets`, may have now; at most the deployment's size."""
    if not is_rolling(deployment):
        return replicas(deployment)
    surge, _ = fenceposts(deployment)
    room = replicas(deployment) + surge - wanted_total(replica_sets)
    if room <= 0:
        return replicas(new)
    return replicas(new) + min(room, replicas(deployment) - replicas(new))


def with_size(replica_set: JsonObject, size: int, deployment: JsonObject) -> JsonObject:
    """`replica_set` with `size` pods wanted, and the deployment's size noted on it."""
    surge, _ = fenceposts(deployment)
    notes = {
        **(replica_set["metadata"].get("annotations") or {}),
        DESIRED: str(replicas(deployment)),
        MAX_REPLICAS: str(replicas(deployment) + surge),
    }
    return replaced(replaced(replica_set, ("metadata", "annotations"), notes), ("spec", "replicas"), size)


def noted(replica_set: JsonObject, annotation: str) -> int | None:
    """A size noted on a replica set; None where it is absent or is no number."""
    text = (replica_set["metadata"].get("annotations") or {}).get(annotation)
    return int(text) if isinstance(text, str) and text.isdecimal() else None


def is_saturated(deployment: JsonObject, new: JsonObject | None) -> bool:
    """Whether `new` has, believes it should have, and has available all pods of the deployment."""
    total = replicas(deployment)
    return new is not None and (
        replicas(new) == total == noted(new, DESIRED) and status_count(new, "availableReplicas") == total
    )


def proportional_sizes(deployment: JsonObject, active: Sequence[JsonObject]) -> dict[str, int]:
    """
    Sizes by name for `active` replica sets after the deployment was scaled amid a rollout.

    Each grows or shrinks by its share, the larger first; what rounding leaves goes to the largest.
    """
    surge, _ = fenceposts(deployment)
    allowed = replicas(deployment) + surge if replicas(deployment) > 0 else 0
    to_add = allowed - wanted_total(active)
    newer_first = sorted(active, key=_created, reverse=to_add > 0)
    ordered = sorted(newer_first, key=replicas, reverse=True)
    sizes, added = {}, 0
    for replica_set in ordered:
        share = _share(replica_set, deployment, to_add=to_add, added=added)
        sizes[replica_set["metadata"]["name"]] = replicas(replica_set) + share
        added += share
    if ordered and to_add:
        largest = ordered[0]["metadata"]["name"]
        sizes[largest] = max(sizes[largest] + to_add - added, 0)
    return sizes


def _created(obj: JsonObject) -> tuple[str, str]:
    return str(obj["metadata"].get("creationTimestamp") or ""), obj["metadata"]["name"]


def _share(replica_set: JsonObject, deployment: JsonObject, *, to_add: int, added: int) -> int:
    if replicas(replica_set) == 0 or to_add in (0, added):
        return 0
    fraction = _fraction(replica_set, deployment)
    return min(fraction, to_add - added) if to_add > 0 else max(fraction, to_add - added)


def _fraction(replica_set: JsonObject, deployment: JsonObject) -> int:
    size, total = replicas(replica_set), replicas(deployment)
    if total == 0:
        return -size
    surge, _ = fenceposts(deployment)
    before = noted(replica_set, MAX_REPLICAS) or status_count(deployment, "replicas")
    if not before:
        return 0
    # Half away from zero, as Go's RoundToInt32; sizes are never negative.
    return math.floor(size * (total + surge) / before + 0.5) - size
