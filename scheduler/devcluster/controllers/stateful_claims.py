"""
The claims of a StatefulSet's pods: made before each pod.

Source: pkg/controller/statefulset/stateful_set_utils.go (getPersistentVolumeClaims, updateStorage), kubernetes 1.36.
Difference: claims stay whatever their retention policy says.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler.devcluster.controllers.actions import Action, Create
from scheduler.devcluster.kinds import PERSISTENT_VOLUME_CLAIM, JsonObject

#: Find a claim of the set's namespace by name.
FindClaim = Callable[[str], JsonObject | None]


def claim_names(stateful_set: JsonObject, number: int) -> dict[str, str]:
    """Return the name of each claim of the pod with this ordinal, by the name of its template."""
    templates = stateful_set["spec"].get("volumeClaimTemplates") or ()
    names = (template["metadata"]["name"] for template in templates)
    return {name: f"{name}-{stateful_set['metadata']['name']}-{number}" for name in names}


def with_claims(spec: JsonObject, stateful_set: JsonObject, number: int) -> JsonObject:
    """Return a pod's spec with its claims as volumes; they replace volumes of the same name."""
    claims = claim_names(stateful_set, number)
    if not claims:
        return spec
    own = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        for name, claim in sorted(claims.items())
    ]
    others = [volume for volume in spec.get("volumes") or () if volume.get("name") not in claims]
    return {**spec, "volumes": [*own, *others]}


def missing_claims(stateful_set: JsonObject, number: int, find_claim: FindClaim) -> list[Action]:
    """Return the creation of every claim that the pod with this ordinal lacks."""
    metadata, names = stateful_set["metadata"], claim_names(stateful_set, number)
    actions: list[Action] = []
    for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
        given = template["metadata"]
        name = names[given["name"]]
        if find_claim(name) is not None:
            continue
        selected = (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {}
        own = {
            **{key: given[key] for key in ("annotations", "finalizers") if given.get(key)},
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {**(given.get("labels") or {}), **selected},
        }
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": own,
            "spec": template["spec"],
        }
        actions.append(Create(PERSISTENT_VOLUME_CLAIM, claim, owner=stateful_set))
    return actions
