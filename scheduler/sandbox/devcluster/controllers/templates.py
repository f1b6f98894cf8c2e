"""
Pod templates: their equality, the hash that names a revision, and the pods that they make.

Source: pkg/controller/controller_utils.go (ComputeHash, GetPodFromTemplate) and
pkg/controller/deployment/util/deployment_util.go (EqualIgnoreHash), kubernetes 1.36. The hash is a CRC of
JSON where upstream's is of another kind and of a Go dump: the same alphabet and length, other letters.
"""

from __future__ import annotations

import json
from typing import Any, Final
from zlib import crc32

from scheduler.sandbox.devcluster.controllers.copies import without
from scheduler.sandbox.devcluster.controllers.ownership import controller_ref
from scheduler.sandbox.devcluster.kinds import JsonObject

HASH_LABEL: Final = "pod-template-hash"

#: Upstream's: without vowels, 0, 1 and 3 no hash reads as a word.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


def canonical(template: JsonObject | None) -> JsonObject:
    """Return `template` without its hash label, nulls, empty lists and empty labels."""
    pruned = _pruned(template or {})
    metadata = pruned.get("metadata") or {}
    labels = without(metadata.get("labels"), HASH_LABEL)
    kept = {**metadata, "labels": labels}
    return {**without(pruned, "metadata"), "metadata": {key: value for key, value in kept.items() if value}}


def same_template(one: JsonObject | None, other: JsonObject | None) -> bool:
    """Return True if two pod templates differ in nothing but their hash label."""
    return canonical(one) == canonical(other)


def template_hash(template: JsonObject) -> str:
    """Return at most ten letters and digits that name `template`."""
    text = json.dumps(canonical(template), sort_keys=True, separators=(",", ":")).encode()
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(crc32(text)))


def pod_from_template(owner: JsonObject) -> JsonObject:
    """Return a pod of `owner`'s template, controlled by `owner`; the server names it."""
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
    return {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": template["spec"]}


def _pruned(value: Any) -> Any:  # noqa: ANN401 - any JSON value, and back
    if isinstance(value, dict):
        # An empty object can have a meaning (a namespaceSelector that selects all), an empty list has none.
        return {k: _pruned(v) for k, v in value.items() if v is not None and v != []}
    return [_pruned(item) for item in value] if isinstance(value, list) else value
