"""
The claims of a StatefulSet's pods: made before each pod, and owned so that they go when the retention policy says.

Source: pkg/controller/statefulset/stateful_set_utils.go (getPersistentVolumeClaims, updateStorage,
updateClaimOwnerRefForSetAndPod), kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler.devcluster.controllers.actions import Action, Create, Update
from scheduler.devcluster.controllers.copies import replaced
from scheduler.devcluster.controllers.ownership import controller_ref, uid
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
        if owner := _owner(stateful_set, None):
            own["ownerReferences"] = [owner]
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": own,
            "spec": template["spec"],
        }
        actions.append(Create(PERSISTENT_VOLUME_CLAIM, claim, owner=stateful_set))
    return actions


def owned_claims(
    stateful_set: JsonObject, pods: Iterable[tuple[int, JsonObject]], wanted: range, find_claim: FindClaim
) -> list[Action]:
    """Return the writes that give the claims of `pods` (with their ordinals) the owners that the policy wants."""
    actions: list[Action] = []
    for number, pod in pods:
        owner = _owner(stateful_set, pod if number not in wanted else None)
        for name in claim_names(stateful_set, number).values():
            claim = find_claim(name)
            if claim is None or claim["metadata"].get("deletionTimestamp"):
                continue
            references = claim["metadata"].get("ownerReferences") or []
            ours = (uid(stateful_set), uid(pod))
            kept = [one for one in references if one.get("uid") not in ours]
            expected = [*kept, *([owner] if owner else ())]
            if [one["uid"] for one in expected] != [one["uid"] for one in references]:
                owned = replaced(claim, ("metadata", "ownerReferences"), expected)
                actions.append(Update(PERSISTENT_VOLUME_CLAIM, owned))
    return actions


def _owner(stateful_set: JsonObject, surplus_pod: JsonObject | None) -> JsonObject | None:
    """Return the owner with which a claim is to go: its pod if that is surplus, the set, or none."""
    policy = stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    if surplus_pod is not None and policy.get("whenScaled") == "Delete":
        return controller_ref(surplus_pod)
    return controller_ref(stateful_set) if policy.get("whenDeleted") == "Delete" else None
