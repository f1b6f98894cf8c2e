"""
The room of pods that wait between Reserve and Bind, whose nominations say where.

- Nothing is written for such a pod before its nomination, so that no end of a process leaves a promise without one.
- No decision takes that room, for a pod that is no more important and by a process that was told of the nomination,
  until this process has decided otherwise about the waiting pod, or that one ends. Schedulers with other names do not
  count it, as upstream's do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.journal import is_terminal, key_of, node_of
from tests.proof.chaos.nominations import nomination_of
from tests.reference.preemption import priority
from tests.reference.requests import allocatable, in_units, pod_requests


def crowding(
    pod: JsonObject, node: JsonObject, told: Iterable[JsonObject], headed: Mapping[str, str]
) -> Iterator[str]:
    """
    Yield whose room the pod takes on the node.

    `told`: the pods that the process knows as the server has them. `headed`: the last node that it decided on, by UID.
    """
    name, taken, waiting = node["metadata"]["name"], _cpu(pod), []
    for other in told:
        uid = other["metadata"]["uid"]
        if uid == pod["metadata"]["uid"] or is_terminal(other):
            continue
        if node_of(other) == name:
            taken += _cpu(other)
        elif _waits_before(other, pod, name) and headed.get(uid, name) == name:
            taken += _cpu(other)
            waiting.append(key_of(other))
    if waiting and taken > (room := allocatable(node)["cpu"]):
        yield f"{', '.join(waiting)} wait on {name}: {taken}m of {room}m cpu"


def without_nomination(users: Iterable[JsonObject], node: str) -> Iterator[str]:
    """Yield the pods for one of which something was written, and none of which is nominated to the node, or any."""
    waiting = [pod for pod in users if not node_of(pod) and not pod["metadata"].get("deletionTimestamp")]
    if waiting and not any((found := nomination_of(pod)) and node in ("", found) for pod in waiting):
        yield f"{', '.join(map(key_of, waiting))} is not nominated to {node or 'a node'}"


def _waits_before(pod: JsonObject, other: JsonObject, node: str) -> bool:
    """Return whether the pod waits on the node, and is of the other one's scheduler and as important at least."""
    return (
        nomination_of(pod) == node
        and not pod["metadata"].get("deletionTimestamp")
        and pod["spec"]["schedulerName"] == other["spec"]["schedulerName"]
        and priority(pod) >= priority(other)
    )


def _cpu(pod: JsonObject) -> int:
    return in_units(pod_requests(pod, use_status=False, pod_level=True)).get("cpu", 0)
