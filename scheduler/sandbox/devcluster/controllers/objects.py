"""
What plans read of objects: names, owners and sizes; what they read of pods, and the pods of a template.

Source: pkg/controller/controller_utils.go (ComputeHash, GetPodFromTemplate), pkg/api/v1/pod/util.go (kubernetes 1.36).
Differences: owners adopt no orphans, and release nothing whose labels no longer match. The hash of a template is a CRC
of JSON where upstream's is of another kind and of a Go dump: the same alphabet and length, other letters. Which pod
goes first is not decided by restarts, phases and how long it is ready, and its age counts to the second; a pod is
available once it is ready, whatever `minReadySeconds` says.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final
from zlib import crc32

from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.parts import condition_of, epoch_s

HASH_LABEL: Final = "pod-template-hash"
REVISION_LABEL: Final = "controller-revision-hash"
#: Upstream's: without vowels, 0, 1 and 3 no hash reads as a word.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
#: No leading zero or plus sign.
_COST: Final = re.compile(r"0|-?[1-9][0-9]{0,9}")


def uid(obj: JsonObject) -> str:
    """Return the object's uid, empty before it is stored."""
    return str(obj["metadata"].get("uid", ""))


def key_of(obj: JsonObject) -> tuple[str, str]:
    """Return namespace and name of an object."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def controller_ref(owner: JsonObject) -> JsonObject:
    """Return the owner reference by which `owner` controls an object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": uid(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: JsonObject) -> JsonObject:
    """Return the reference to the object's controller, empty for an orphan."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((one for one in references if one.get("controller")), {})


def replicas(obj: JsonObject) -> int:
    """Return `spec.replicas`, 1 if it is absent."""
    return int(obj["spec"].get("replicas", 1))


def status_count(obj: JsonObject, name: str) -> int:
    """Return a count of the object's status, 0 if it is absent."""
    return int((obj.get("status") or {}).get(name) or 0)


def generation(obj: JsonObject) -> int:
    """Return `metadata.generation`, 0 if it is absent."""
    return int(obj["metadata"].get("generation", 0))


def scaled(value: int | str | None, total: int, *, round_up: bool) -> int:
    """Return a count, or a percentage of `total`, as a count."""
    if isinstance(value, str):
        share = int(value.removesuffix("%")) * total / 100
        return math.ceil(share) if round_up else math.floor(share)
    return value or 0


def template_hash(template: JsonObject) -> str:
    """Return at most ten letters and digits that name `template`."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":")).encode()
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(crc32(text)))


def pod_from_template(owner: JsonObject, labels: JsonObject | None = None) -> JsonObject:
    """Return a pod of `owner`'s template with further `labels`, controlled by `owner`; the server names it."""
    template = owner["spec"]["template"]
    metadata = template.get("metadata") or {}
    own: JsonObject = {
        "generateName": f"{owner['metadata']['name']}-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [controller_ref(owner)],
    }
    for name in ("labels", "annotations", "finalizers"):
        if metadata.get(name):
            own[name] = metadata[name]
    if labels:
        own["labels"] = {**(own.get("labels") or {}), **labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": template["spec"]}


def phase(pod: JsonObject) -> str:
    """Return `status.phase`; Pending if it is absent."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_terminal(pod: JsonObject) -> bool:
    """Return True if the pod ran to its end."""
    return phase(pod) in ("Succeeded", "Failed")


def is_terminating(obj: JsonObject) -> bool:
    """Return True if the object is deleted but not yet gone."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_active(pod: JsonObject) -> bool:
    """Return True if the pod counts as one of its controller's replicas."""
    return not is_terminal(pod) and not is_terminating(pod)


def node_name(pod: JsonObject) -> str:
    """Return the node that the pod is bound to, empty before."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def label(obj: JsonObject, name: str) -> str:
    """Return a label of the object, empty if it is absent."""
    return str((obj["metadata"].get("labels") or {}).get(name, ""))


def annotation(obj: JsonObject, name: str) -> str:
    """Return an annotation of the object, empty if it is absent."""
    return str((obj["metadata"].get("annotations") or {}).get(name) or "")


def claim_names(pod: JsonObject) -> list[str]:
    """Return the names of the claims that the pod's volumes are, those of ephemeral volumes included."""
    names: list[str] = []
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            names.append(volume["persistentVolumeClaim"]["claimName"])
        elif volume.get("ephemeral"):
            names.append(f"{pod['metadata']['name']}-{volume['name']}")
    return names


def is_ready(pod: JsonObject) -> bool:
    """Return True if the pod's condition Ready holds."""
    ready = condition_of((pod.get("status") or {}).get("conditions") or (), "Ready")
    return ready is not None and ready.get("status") == "True"


def is_available(pod: JsonObject) -> bool:
    """Return True if the pod stays and is ready."""
    return not is_terminating(pod) and is_ready(pod)


def deletion_order(pods: Iterable[JsonObject], related: Iterable[JsonObject]) -> list[JsonObject]:
    """
    Return `pods` in deletion order: unassigned, not ready, cheap, doubled up and young ones first.

    `pods` are the active ones of one controller, `related` those of the same deployment, which make a node doubled up.
    """
    pods_on_node = Counter(node_name(pod) for pod in related)

    def order(pod: JsonObject) -> tuple[bool, bool, int, int, float, str]:
        return (
            node_name(pod) != "",
            is_ready(pod),
            _deletion_cost(pod),
            -pods_on_node[node_name(pod)],
            -(epoch_s(pod["metadata"].get("creationTimestamp")) or 0.0),
            str(pod["metadata"].get("uid", "")),
        )

    return sorted(pods, key=order)


def _deletion_cost(pod: JsonObject) -> int:
    """
    Return the annotated cost, 0 without one or if it is no integer of 32 bits.

    Source: pkg/apis/core/helper/helpers.go, GetDeletionCostFromPodAnnotations (kubernetes 1.36).
    """
    text = annotation(pod, "controller.kubernetes.io/pod-deletion-cost")
    cost = int(text) if _COST.fullmatch(text) else 0
    return cost if -(2**31) <= cost < 2**31 else 0
