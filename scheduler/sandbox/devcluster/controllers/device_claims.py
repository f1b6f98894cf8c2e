"""
The plans of the controller of device claims: it creates the claims of templates, and frees what no pod uses.

Source: pkg/controller/resourceclaim/controller.go (kubernetes 1.36). Difference: nothing is reserved for a pod that
was bound without a scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
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
from scheduler.sandbox.devcluster.controllers.ownership import controller_ref, controller_uid, uid
from scheduler.sandbox.devcluster.controllers.pods import is_terminal, is_terminating, node_name
from scheduler.sandbox.devcluster.kinds import POD, RESOURCE_CLAIM, JsonObject

#: Annotation of a claim made from a template: the pod's name of it.
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"

Find = Callable[[str], JsonObject | None]


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


def plan_pod(pod: JsonObject, find_template: Find, find_claim: Find, owned: list[JsonObject]) -> list[Action]:
    """
    Return the next step of a pod with claims: make one of a template, or tell the pod its name.

    `owned` are the claims that the pod controls.
    """
    if is_terminating(pod) or is_terminal(pod):
        return []
    actions: list[Action] = []
    statuses: dict[str, str] = {}
    names = pod_claims(pod)
    for claim in pod["spec"].get("resourceClaims") or ():
        template_name = claim.get("resourceClaimTemplateName")
        if not template_name or _is_made(names[claim["name"]], find_claim, pod):
            continue
        made = next((one for one in owned if _pod_name_of(one) == claim["name"]), None)
        if made is not None:
            statuses[claim["name"]] = made["metadata"]["name"]
            continue
        template = find_template(template_name)
        if template is None:
            why = f'resource claim template "{template_name}": resourceclaimtemplate.resource.k8s.io '
            text = f'PodResourceClaim {claim["name"]}: {why}"{template_name}" not found'
            return [Emit("FailedResourceClaimCreation", text)]
        actions.append(Create(RESOURCE_CLAIM, _from_template(pod, claim["name"], template)))
    if statuses:
        known = pod.get("status") or {}
        kept = [one for one in known.get("resourceClaimStatuses") or () if one["name"] not in statuses]
        added = [{"name": name, "resourceClaimName": claim} for name, claim in statuses.items()]
        actions += status_written(POD, pod, {**known, "resourceClaimStatuses": [*kept, *added]})
    return actions


def _is_made(name: str | None, find_claim: Find, pod: JsonObject) -> bool:
    claim = find_claim(name) if name else None
    return claim is not None and controller_uid(claim) == uid(pod)


def _pod_name_of(claim: JsonObject) -> str | None:
    name: str | None = (claim["metadata"].get("annotations") or {}).get(POD_CLAIM_NAME)
    return name


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


def plan_claim(claim: JsonObject, find_pod: Find) -> list[Action]:
    """Return the next step of a claim: pods that are gone or done let it go; the last one frees its devices."""
    status, metadata = claim.get("status") or {}, claim["metadata"]
    consumers = status.get("reservedFor") or []
    users = [one for one in consumers if one.get("resource") != "pods" or _runs(find_pod, one)]
    is_protected = DELETE_PROTECTION in (metadata.get("finalizers") or ())
    if users and len(users) == len(consumers):
        return []
    freed = without(status, "reservedFor")
    if users:
        freed["reservedFor"] = users
    elif not consumers and not (is_protected and metadata.get("deletionTimestamp")):
        return _delete_unused(claim, find_pod)
    elif is_protected:
        freed.pop("allocation", None)
    unprotected = [] if "allocation" in freed else finalizer_removed(RESOURCE_CLAIM, claim, DELETE_PROTECTION)
    return [*status_written(RESOURCE_CLAIM, claim, freed), *unprotected]


def _runs(find_pod: Find, consumer: JsonObject) -> bool:
    pod = find_pod(consumer.get("name") or "")
    return pod is not None and uid(pod) == consumer.get("uid") and not _is_done(pod)


def _is_done(pod: JsonObject) -> bool:
    """Return whether the pod will not run any more. Source: controller.go, isPodDone."""
    return is_terminal(pod) or (is_terminating(pod) and not node_name(pod))


def _delete_unused(claim: JsonObject, find_pod: Find) -> list[Action]:
    """Return the deletion of a claim that was made for a pod which is done."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if not owner.get("controller") or owner.get("kind") != "Pod":
            continue
        pod = find_pod(owner["name"])
        if pod is not None and (uid(pod) != owner["uid"] or _is_done(pod)):
            return [] if claim["metadata"].get("deletionTimestamp") else [Delete(RESOURCE_CLAIM, claim)]
    return []
