"""
Claims of a pod, their class and their PersistentVolume.

Source: component-helpers/storage/{volume,ephemeral} (kubernetes 1.36).
"""

from tests.reference.question import Object, Question, namespace_of

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


def volumes_of(pod: Object) -> list[Object]:
    """Return `spec.volumes`, empty where absent."""
    volumes: list[Object] = (pod.get("spec") or {}).get("volumes") or []
    return volumes


def claimed_names(pod: Object) -> list[str]:
    """Return the claim names of volumes of the kind persistentVolumeClaim, in order."""
    return [
        volume["persistentVolumeClaim"].get("claimName") or ""
        for volume in volumes_of(pod)
        if volume.get("persistentVolumeClaim") is not None
    ]


def claim_names(pod: Object) -> list[tuple[str, bool]]:
    """Return claim names in the order of volumes, and whether each claim is of a generic ephemeral volume."""
    names = []
    for volume in volumes_of(pod):
        if volume.get("persistentVolumeClaim") is not None:
            names.append((volume["persistentVolumeClaim"].get("claimName") or "", False))
        elif volume.get("ephemeral") is not None:
            names.append((f"{pod['metadata']['name']}-{volume['name']}", True))
    return names


def claim(question: Question, namespace: str, name: str) -> Object | None:
    for found in question.objects("PersistentVolumeClaim"):
        if namespace_of(found) == namespace and found["metadata"]["name"] == name:
            return found
    return None


def named(question: Question, kind: str, name: str) -> Object | None:
    """Return the object of a kind without namespaces, None if there is none."""
    return next((one for one in question.objects(kind) if one["metadata"]["name"] == name), None)


def annotations(thing: Object) -> Object:
    """Return `metadata.annotations`, empty where absent."""
    found: Object = thing["metadata"].get("annotations") or {}
    return found


def class_name(thing: Object) -> str:
    """Return the storage class of a claim or a volume: the annotation's where there is one."""
    annotated = annotations(thing).get(_CLASS_ANNOTATION)
    name: str = (thing["spec"].get("storageClassName") or "") if annotated is None else annotated
    return name


def volume_name(its_claim: Object) -> str:
    """Return `spec.volumeName`, empty where absent."""
    name: str = its_claim["spec"].get("volumeName") or ""
    return name


def is_bound(its_claim: Object) -> bool:
    """Return whether the claim is fully bound; its phase does not matter."""
    return bool(volume_name(its_claim)) and _BIND_COMPLETED in annotations(its_claim)


def is_owned(its_claim: Object, pod: Object) -> bool:
    """Return whether the pod controls the claim, by UID."""
    return any(
        reference.get("controller") and reference.get("uid") == pod["metadata"].get("uid")
        for reference in its_claim["metadata"].get("ownerReferences") or []
    )


def not_owned(its_claim: Object, pod: Object) -> str:
    """Return the message about an ephemeral volume's claim that belongs to another pod."""
    claim_key = f"{namespace_of(its_claim)}/{its_claim['metadata']['name']}"
    pod_key = f"{namespace_of(pod)}/{pod['metadata']['name']}"
    return f"PVC {claim_key} was not created for pod {pod_key} (pod is not owner)"


def no_claim(name: str) -> str:
    """Return the message about a claim that does not exist."""
    return f'persistentvolumeclaim "{name}" not found'
