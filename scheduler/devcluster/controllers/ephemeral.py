"""
The ephemeral volume controller: a claim for every generic ephemeral volume of a pod.

Source: pkg/controller/volume/ephemeral/controller.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler.devcluster.controllers.actions import Action, Create, Emit
from scheduler.devcluster.controllers.ownership import controller_ref, controller_uid, uid
from scheduler.devcluster.controllers.pods import is_active
from scheduler.devcluster.kinds import PERSISTENT_VOLUME_CLAIM, JsonObject


def plan(pod: JsonObject, find_claim: Callable[[str], JsonObject | None]) -> list[Action]:
    """Return the claims that the pod's ephemeral volumes lack; `find_claim` finds one of its namespace by name."""
    actions: list[Action] = []
    if not is_active(pod):
        return actions
    metadata = pod["metadata"]
    for volume in pod["spec"].get("volumes") or ():
        if not volume.get("ephemeral"):
            continue
        name = f"{metadata['name']}-{volume['name']}"
        found = find_claim(name)
        if found is None:
            template = volume["ephemeral"]["volumeClaimTemplate"]
            given = template.get("metadata") or {}
            own = {key: given[key] for key in ("labels", "annotations") if given.get(key)}
            own |= {
                "name": name,
                "namespace": metadata["namespace"],
                "ownerReferences": [controller_ref(pod)],
            }
            claim = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": own,
                "spec": template["spec"],
            }
            actions.append(Create(PERSISTENT_VOLUME_CLAIM, claim))
        elif controller_uid(found) != uid(pod):
            where = f"{metadata['namespace']}/{name}"
            text = f"PVC {where} was not created for pod {metadata['namespace']}/{metadata['name']} (pod is not owner)"
            actions.append(Emit(pod, "FailedBinding", text, "Warning"))
    return actions
