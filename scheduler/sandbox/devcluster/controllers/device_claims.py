"""
The controller of device claims: it creates the claims of templates, and frees what no pod uses.

Source: pkg/controller/resourceclaim/controller.go (kubernetes 1.36). Difference: nothing is reserved for a pod that
was bound without a scheduler.
"""

from __future__ import annotations

from typing import Final

from scheduler.sandbox.devcluster.admission.device_claims import DELETE_PROTECTION
from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    Emit,
    finalizer_removed,
    status_written,
    without,
)
from scheduler.sandbox.devcluster.controllers.objects import (
    annotation,
    controller_of,
    controller_ref,
    is_active,
    is_terminal,
    is_terminating,
    key_of,
    node_name,
    uid,
)
from scheduler.sandbox.devcluster.kinds import POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, JsonObject
from scheduler.sandbox.devcluster.storage.store import ObjectStore

#: Annotation of a claim made from a template: the pod's name of it.
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"


def pod_claims(pod: JsonObject) -> dict[str, str | None]:
    """Return the name of the claim behind each of the pod's claims; None while none was made from its template."""
    claims = (pod.get("spec") or {}).get("resourceClaims")
    if not claims:
        # Nearly every pod: this is asked at each of its writes.
        return {}
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {status["name"]: status.get("resourceClaimName") for status in statuses}
    return {claim["name"]: claim.get("resourceClaimName") or made.get(claim["name"]) for claim in claims}


def extended_claim(pod: JsonObject) -> str | None:
    """Return the claim that the scheduler made for the pod's extended resources, if any."""
    name = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    return str(name) if name else None


def claim_names(pod: JsonObject) -> set[str]:
    """Return the claims that a pod names, the one for its extended resources included."""
    return {name for name in (*pod_claims(pod).values(), extended_claim(pod)) if name}


def is_reserved(claim: JsonObject, pod: JsonObject) -> bool:
    """Return whether the claim is allocated and lets the pod use it."""
    status = claim.get("status") or {}
    consumers = status.get("reservedFor") or ()
    return status.get("allocation") is not None and any(one.get("uid") == uid(pod) for one in consumers)


def plan_pod(pod: JsonObject, store: ObjectStore) -> list[Action]:
    """Return the next step of a pod with claims: make one of a template, or tell the pod its name."""
    claims = (pod.get("spec") or {}).get("resourceClaims")
    if not claims or not is_active(pod):
        return []
    owned = {annotation(one, POD_CLAIM_NAME): one for one in store.owned(RESOURCE_CLAIM, uid(pod))}
    actions: list[Action] = []
    statuses = {}
    for claim in claims:
        name, template_name = claim["name"], claim.get("resourceClaimTemplateName")
        if not template_name:
            continue
        if name in owned:
            statuses[name] = {"name": name, "resourceClaimName": owned[name]["metadata"]["name"]}
            continue
        template = store.find(RESOURCE_CLAIM_TEMPLATE, key_of(pod)[0], template_name)
        if template is None:
            why = f'resource claim template "{template_name}": resourceclaimtemplate.resource.k8s.io '
            return [
                Emit(
                    "FailedResourceClaimCreation",
                    f'PodResourceClaim {name}: {why}"{template_name}" not found',
                )
            ]
        actions.append(Create(RESOURCE_CLAIM, _from_template(pod, name, template)))
    known = pod.get("status") or {}
    stated = {one["name"]: one for one in known.get("resourceClaimStatuses") or ()}
    if not statuses.items() <= stated.items():
        told = [*(stated | statuses).values()]
        actions += status_written(POD, pod, {**known, "resourceClaimStatuses": told})
    return actions


def _from_template(pod: JsonObject, name: str, template: JsonObject) -> JsonObject:
    spec = template["spec"]
    metadata = spec.get("metadata") or {}
    return {
        "metadata": {
            "generateName": f"{pod['metadata']['name']}-{name}-",
            "namespace": pod["metadata"]["namespace"],
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {**(metadata.get("annotations") or {}), POD_CLAIM_NAME: name},
            "ownerReferences": [controller_ref(pod)],
        },
        "spec": spec["spec"],
    }


def plan_claim(claim: JsonObject, store: ObjectStore) -> list[Action]:
    """Return the next step of a claim: pods that are gone or done let it go; the last one frees its devices."""
    status, metadata = claim.get("status") or {}, claim["metadata"]
    consumers = status.get("reservedFor") or []
    users = [one for one in consumers if one.get("resource") != "pods" or _runs(claim, one, store)]
    is_protected = DELETE_PROTECTION in (metadata.get("finalizers") or ())
    if users and len(users) == len(consumers):
        return []
    freed = without(status, "reservedFor")
    if users:
        freed["reservedFor"] = users
    elif not consumers and not (is_protected and is_terminating(claim)):
        # A claim that was made for a pod which is done.
        owner = controller_of(claim)
        is_unused = owner.get("kind") == POD.kind and not _runs(claim, owner, store)
        return [Delete(RESOURCE_CLAIM, claim)] if is_unused and not is_terminating(claim) else []
    elif is_protected:
        freed.pop("allocation", None)
    unprotected = [] if "allocation" in freed else finalizer_removed(RESOURCE_CLAIM, claim, DELETE_PROTECTION)
    return [*status_written(RESOURCE_CLAIM, claim, freed), *unprotected]


def _runs(claim: JsonObject, named: JsonObject, store: ObjectStore) -> bool:
    """Return whether the pod that a claim names is there, and may run. Source: controller.go, isPodDone."""
    pod = store.find(POD, key_of(claim)[0], named.get("name") or "")
    if pod is None or uid(pod) != named.get("uid"):
        return False
    return not is_terminal(pod) and (not is_terminating(pod) or bool(node_name(pod)))
