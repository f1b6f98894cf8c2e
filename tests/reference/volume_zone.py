"""
VolumeZone: volumes with labels of zones and regions.

Source: plugins/volumezone/volume_zone.go (kubernetes 1.36).
"""

from tests.reference.question import UNRESOLVABLE, Object, Question, Verdict, labels_of
from tests.reference.volume_claims import claim, claimed_names, class_name, named, no_claim, volume_name

NAME = "VolumeZone"

OTHER_ZONE = "node(s) had no available volume zone"

_NEWER = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_KEYS = (*_NEWER, *_NEWER.values())


def prefilter(question: Question) -> Verdict | None:
    """Refuse a pod with a claim that leads to no volume."""
    volumes = _volumes(question)
    return volumes if isinstance(volumes, Verdict) else None


def refusals(question: Question) -> dict[str, Verdict]:
    """Return the refusals by node."""
    volumes = _volumes(question)
    assert not isinstance(volumes, Verdict)
    rules = [
        (key, {zone.strip() for zone in labels_of(volume)[key].split("__")})
        for volume in volumes
        for key in _KEYS
        if key in labels_of(volume)
    ]
    rules = [(key, zones) for key, zones in rules if "" not in zones]
    found = {}
    for node in question.nodes:
        labels = question.node_labels(node)
        if any(key in labels for key in _KEYS) and not all(_agrees(labels, *rule) for rule in rules):
            found[node] = Verdict(UNRESOLVABLE, (OTHER_ZONE,))
    return found


def _agrees(labels: Object, key: str, zones: set[str]) -> bool:
    value = labels.get(key)
    if value is None and key in _NEWER:
        value = labels.get(_NEWER[key])
    return value in zones


def _volumes(question: Question) -> list[Object] | Verdict:
    found = []
    for name in claimed_names(question.pod):
        its_claim = claim(question, question.namespace, name)
        if its_claim is None:
            return _refused(no_claim(name))
        if not volume_name(its_claim):
            problem = _problem(question, class_name(its_claim))
            if problem is not None:
                return _refused(problem)
            continue
        volume = named(question, "PersistentVolume", volume_name(its_claim))
        if volume is None:
            return _refused(f'persistentvolume "{volume_name(its_claim)}" not found')
        found.append(volume)
    return found


def _problem(question: Question, its_class: str) -> str | None:
    if not its_class:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = named(question, "StorageClass", its_class)
    if storage_class is None:
        return f'storageclass.storage.k8s.io "{its_class}" not found'
    mode = storage_class.get("volumeBindingMode")
    if mode is None:
        return f'VolumeBindingMode not set for StorageClass "{its_class}"'
    return None if mode == "WaitForFirstConsumer" else "PersistentVolume had no name"


def _refused(reason: str) -> Verdict:
    return Verdict(UNRESOLVABLE, (reason,))
