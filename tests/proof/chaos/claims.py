"""
What has to hold while pods with claims of volumes or of devices are placed, and at the end.

- A pod is bound only while its claims of volumes are, to a node that reaches these, and while its claims of devices
  have some on that node, and are reserved for it. That no volume and no device is another claim's too, the history's
  checker judges.
- Nothing is written for a pod that waits between Reserve and Bind before its nomination, which says where, so that no
  end of a process leaves a promise without one.
- No decision takes that room, for a pod that is no more important and by a process that was told of the nomination,
  until this process has decided otherwise about the waiting pod, or that one ends. Schedulers with other names do not
  count it, as upstream's do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from scheduler.engine.core.machine import Machine
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.volumes import SELECTED_NODE, StorageKind
from scheduler.sandbox.devcluster.controllers.device_claims import extended_claim, pod_claims
from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.binds import state_at
from tests.proof.chaos.journal import (
    Journal,
    is_terminal,
    key_of,
    node_of,
    volume_claims,
    wants_extended,
    without_claims,
)
from tests.proof.chaos.nominations import nomination_of
from tests.proof.chaos.stage import KINDS
from tests.proof.chaos.verdicts import Verdict, Wrong
from tests.proof.history.checker import check
from tests.reference.node_selection import any_term_matches
from tests.reference.preemption import priority
from tests.reference.requests import allocatable, in_units, pod_requests

#: The server's objects of a kind.
Objects = Callable[[str], list[JsonObject]]
#: By kind and key.
Stored = Mapping[tuple[str, str], JsonObject]
#: Driver, pool and name.
Device = tuple[str, str, str]
_VOLUMES = ("PersistentVolume", "PersistentVolumeClaim")
_DEVICES = ("ResourceClaim", "ResourceSlice", "DeviceClass")
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


def claims_kept(journal: Journal) -> Iterator[Wrong]:
    """Yield binds of pods whose claims were not ready, and writes for pods that were not nominated."""
    there: dict[tuple[str, str], JsonObject] = {}
    for at_s, event_type, more in journal.history:
        if event_type not in ("ADDED", "MODIFIED", "DELETED"):
            continue
        obj, by, entry = more["object"], more["by"], (more["kind"], key_of(more["object"]))
        before = there.pop(entry, {})
        if event_type == "DELETED":
            continue
        there[entry] = obj
        if not journal.group(by):
            continue
        if more["kind"] == "Pod" and before and node_of(obj) and not node_of(before):
            for why in _unready(obj, there):
                yield Wrong(Verdict.CLAIM, f"{key_of(obj)} was bound by {by} although {why}", at_s)
        elif not journal.may_lose_nominations:
            for users, node in _promised(more["kind"], obj, before, there):
                if any(user["metadata"]["uid"] in journal.outbid for user in users):
                    continue
                for why in _without_nomination(users, node):
                    yield Wrong(Verdict.ROOM, f"{key_of(obj)} was written by {by} although {why}", at_s)


def _unready(pod: JsonObject, there: Stored) -> Iterator[str]:
    """Yield why the pod, which has a node, must not have it."""
    node, namespace = node_of(pod), pod["metadata"]["namespace"]
    for name in volume_claims(pod):
        claim = there.get(("PersistentVolumeClaim", f"{namespace}/{name}"))
        if claim is None:
            continue  # deleted before the watch could show it
        volume_name = claim["spec"].get("volumeName") or ""
        if not volume_name or _BIND_COMPLETED not in (claim["metadata"].get("annotations") or {}):
            yield f"claim {name} was not"
            continue
        volume = there.get(("PersistentVolume", volume_name), {})
        required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
        if required and ("Node", node) in there and not any_term_matches(required, there["Node", node]):
            yield f"its node does not reach {volume_name}"
    if wants_extended(pod) and not extended_claim(pod):
        yield "it has no claim for its extended resources"
    for made in (*pod_claims(pod).values(), *filter(None, [extended_claim(pod)])):
        name = str(made)
        claim = there.get(("ResourceClaim", f"{namespace}/{name}"), {})
        if not (claim.get("status") or {}).get("allocation"):
            yield f"claim {name} was not allocated"
        elif pod["metadata"]["uid"] not in _users(claim):
            yield f"claim {name} was not reserved for it"
        elif any(pool != node for _, pool, _ in devices_of(claim)):
            yield f"claim {name} has devices of another node"


def _promised(
    kind: str, obj: JsonObject, before: JsonObject, there: Stored
) -> Iterator[tuple[list[JsonObject], str]]:
    """Yield pods to one of which the write promises the object, and the node, empty where it names none."""
    pods = [one for (its, _), one in there.items() if its == "Pod"]
    if kind == "ResourceClaim":
        for uid in _users(obj) - _users(before):
            yield [pod for pod in pods if pod["metadata"]["uid"] == uid], ""
    elif kind == "PersistentVolumeClaim":
        now, then = (
            (one.get("metadata", {}).get("annotations") or {}).get(SELECTED_NODE) for one in (obj, before)
        )
        if now and now != then:
            yield [pod for pod in pods if obj["metadata"]["name"] in volume_claims(pod)], now
    elif kind == "PersistentVolume":
        now, then = ((one.get("spec", {}).get("claimRef") or {}) for one in (obj, before))
        if now.get("uid") and now["uid"] != then.get("uid"):
            yield [pod for pod in pods if now["name"] in volume_claims(pod)], ""


def _without_nomination(users: Iterable[JsonObject], node: str) -> Iterator[str]:
    """Yield the pods for one of which something was written, and none of which is nominated to the node, or any."""
    waiting = [pod for pod in users if not node_of(pod) and not pod["metadata"].get("deletionTimestamp")]
    if waiting and not any((found := nomination_of(pod)) and node in ("", found) for pod in waiting):
        yield f"{', '.join(map(key_of, waiting))} is not nominated to {node or 'a node'}"


def rooms_kept(journal: Journal) -> Iterator[Wrong]:
    """Yield decisions that took the room of pods that wait."""
    if journal.may_lose_nominations:
        # The end of a nomination may be lost too: the server then names the node of a pod that no longer waits.
        return
    for one in journal.decided:
        node = state_at(journal.written, "Node", one.version).get(one.node)
        pods = [*state_at(journal.written, "Pod", one.version).values()]
        pod = next((each for each in pods if each["metadata"]["uid"] == one.uid), None)
        if node is None or pod is None:
            continue
        told = [each for each in pods if int(each["metadata"]["resourceVersion"]) <= one.seen["Pod"]]
        for why in _crowding(pod, node, told, one.headed):
            text = f"{one.by} chose {one.node} for {one.key} although {why}"
            yield Wrong(Verdict.ROOM, text, one.at_s)


def _crowding(
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


def n_collisions(journal: Journal) -> int:
    """Return how often a claim was allocated with a device that another claim had."""
    lines = (line for line in journal.history_lines() if b'"BEGIN"' not in line)
    return sum("was promised to claim" in text for text in check(lines))


# The end of a run.


def seen_by_reference(objects: Objects) -> dict[str, list[JsonObject]]:
    """Return the objects that decisions without claims depend on, but for pods that wait for a claim to be made."""
    there = {kind: objects(kind) for kind in KINDS}
    there["Pod"] = [
        without_claims(pod) for pod in there["Pod"] if node_of(pod) or not _lacks_claim(pod, objects)
    ]
    return there


def left_reserved(objects: Objects) -> Iterator[str]:
    """
    Yield claims of devices that are reserved for a pod that is gone, or that does not run.

    A pod that waits for another of its claims to be created keeps the ones that it has: the instance that reserved
    them has died, and as with kube-scheduler only the pod's end takes them back.
    """
    claims = objects("ResourceClaim")
    placed = {
        pod["metadata"]["uid"]
        for pod in (objects("Pod") if claims else ())
        if not is_terminal(pod) and (node_of(pod) or _lacks_claim(pod, objects))
    }
    for claim in claims:
        for consumer in (claim.get("status") or {}).get("reservedFor") or ():
            if consumer["uid"] not in placed:
                yield f"{key_of(claim)} is reserved for {consumer['name']}, which does not run"


def stale_claims(machine: Machine, objects: Objects) -> Iterator[str]:
    """Yield differences between the machine's volumes and devices and the server's."""
    volumes, devices = machine.state.volumes, machine.state.devices
    if machine._reservations or volumes._assumptions or devices._assumptions:
        yield "still assumes or writes claims"
    for kind in (*_VOLUMES, *_DEVICES):
        for obj in objects(kind):
            known = (
                volumes.get(StorageKind(kind), key_of(obj))
                if kind in _VOLUMES
                else devices.get(DeviceKind(kind), key_of(obj))
            )
            if known is None or known.resource_version != obj["metadata"]["resourceVersion"]:
                yield f"{kind} {key_of(obj)} is not as the server has it"


def _lacks_claim(pod: JsonObject, objects: Objects) -> bool:
    """Return whether a claim of the pod is not there, or is being deleted."""
    for kind, names in (
        ("PersistentVolumeClaim", volume_claims(pod)),
        ("ResourceClaim", pod_claims(pod).values()),
    ):
        wanted = {f"{pod['metadata']['namespace']}/{name}" for name in names}
        if wanted and wanted - {
            key_of(one) for one in objects(kind) if not one["metadata"].get("deletionTimestamp")
        }:
            return True
    return False


def devices_of(claim: JsonObject) -> list[Device]:
    """Return the devices that are allocated to the claim."""
    return [(each["driver"], each["pool"], each["device"]) for each in results_of(claim)]


def results_of(claim: JsonObject) -> list[JsonObject]:
    """Return what is allocated to the claim."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def _users(claim: JsonObject) -> set[str]:
    """Return the UIDs of the pods for which the claim is reserved."""
    return {each["uid"] for each in (claim.get("status") or {}).get("reservedFor") or ()}
