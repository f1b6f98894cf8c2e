"""
VolumeRestrictions: disks that one node mounts for one pod alone, and claims that one pod in the cluster may use.

Source: plugins/volumerestrictions/volume_restrictions.go (kubernetes 1.36).
"""

from tests.reference.question import UNRESOLVABLE, UNSCHEDULABLE, Object, Question, Verdict, namespace_of
from tests.reference.volume_claims import claim, claimed_names, no_claim, volumes_of

NAME = "VolumeRestrictions"

NO_DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)

_KINDS = ("gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi")


def prefilter(question: Question) -> Verdict | None:
    """Refuse a pod with a claim that does not exist."""
    for name in claimed_names(question.pod):
        if claim(question, question.namespace, name) is None:
            return Verdict(UNRESOLVABLE, (no_claim(name),))
    return None


def refusals(question: Question) -> dict[str, Verdict]:
    """Return the refusals by node."""
    in_use = _n_taken(question) > 0
    found = {}
    for node, pods in question.pods_on.items():
        others = [volume for pod in pods for volume in volumes_of(pod)]
        if any(_conflict(one, other) for one in volumes_of(question.pod) for other in others):
            found[node] = Verdict(UNSCHEDULABLE, (NO_DISK,))
        elif in_use:
            found[node] = Verdict(UNSCHEDULABLE, (IN_USE,))
    return found


def _n_taken(question: Question) -> int:
    """
    Return how many of the pod's ReadWriteOncePod claims are taken.

    Quirk of kubernetes 1.36 (conflictingPVCRefCount): a claim counts once, however many pods use it; but each volume of
    a pod that leaves counts as one less, and its claim is compared by name, whatever the namespace.
    """
    running = [pod for pods in question.pods_on.values() for pod in pods]
    used = {(namespace_of(pod), name) for pod in [*running, *question.gone] for name in claimed_names(pod)}
    wanted = _once_per_pod(question)
    n_used = sum((question.namespace, name) in used for name in wanted)
    return n_used - sum(name in wanted for pod in question.gone for name in claimed_names(pod))


def _once_per_pod(question: Question) -> set[str]:
    names = set()
    for name in claimed_names(question.pod):
        found = claim(question, question.namespace, name)
        if found is not None and "ReadWriteOncePod" in (found["spec"].get("accessModes") or []):
            names.add(name)
    return names


def _conflict(one: Object, other: Object) -> bool:
    for kind in _KINDS:
        mine, theirs = one.get(kind), other.get(kind)
        if mine is None or theirs is None:
            continue
        both_read = bool(mine.get("readOnly")) and bool(theirs.get("readOnly"))
        if kind == "gcePersistentDisk" and mine["pdName"] == theirs["pdName"] and not both_read:
            return True
        if kind == "awsElasticBlockStore" and mine["volumeID"] == theirs["volumeID"]:
            return True
        if kind == "iscsi" and mine["iqn"] == theirs["iqn"] and not both_read:
            return True
        if kind == "rbd" and _same_image(mine, theirs) and not both_read:
            return True
    return False


def _same_image(mine: Object, theirs: Object) -> bool:
    return (
        bool(set(mine.get("monitors") or []) & set(theirs.get("monitors") or []))
        and (mine.get("pool") or "rbd") == (theirs.get("pool") or "rbd")
        and mine["image"] == theirs["image"]
    )
