"""
Owners: what they control, and the pods of their templates.

Source: pkg/controller/controller_utils.go (ComputeHash, GetPodFromTemplate), kubernetes 1.36. Differences: owners adopt
no orphans, and release nothing whose labels no longer match. The hash of a template is a CRC of JSON where upstream's
is of another kind and of a Go dump: the same alphabet and length, other letters.
"""

from __future__ import annotations

import json
import math
from typing import Final
from zlib import crc32

from scheduler.sandbox.devcluster.kinds import JsonObject

HASH_LABEL: Final = "pod-template-hash"
REVISION_LABEL: Final = "controller-revision-hash"
#: Upstream's: without vowels, 0, 1 and 3 no hash reads as a word.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


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


# -- sizes ---------------------------------------------------------------------------------------------------


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


# -- templates -----------------------------------------------------------------------------------------------


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
