"""
VolumeBinding: nodes on which every claim is bound, finds a volume, or can have one made.

Source: plugins/volumebinding/{volume_binding,binder}.go, component-helpers/storage/volume (kubernetes 1.36).
"""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from tests.reference import quantity, selectors
from tests.reference.arithmetic import broken_linear, rounded
from tests.reference.node_selection import labels_match
from tests.reference.question import (
    UNRESOLVABLE,
    CycleError,
    Object,
    Question,
    Verdict,
    labels_of,
    namespace_of,
)
from tests.reference.volume_claims import (
    annotations,
    claim,
    claim_names,
    class_name,
    is_bound,
    is_owned,
    named,
    no_claim,
    not_owned,
    volume_name,
)

NAME = "VolumeBinding"

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
#: In the order in which they are said.
_REASONS = (NODE_CONFLICT, BIND_CONFLICT, NO_SPACE, NO_VOLUME)

_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
_BETA_ZONE, _ZONE = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"
_BETA_REGION, _REGION = "failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"
#: Source field of a volume: the plugin, and the zone label of its driver.
_MIGRATED = {
    "gcePersistentDisk": ("kubernetes.io/gce-pd", "topology.gke.io/zone"),
    "awsElasticBlockStore": ("kubernetes.io/aws-ebs", "topology.ebs.csi.aws.com/zone"),
    "azureDisk": ("kubernetes.io/azure-disk", "topology.disk.csi.azure.com/zone"),
    "cinder": ("kubernetes.io/cinder", "topology.cinder.csi.openstack.org/zone"),
}


def prefilter(question: Question) -> Verdict | None:
    """Refuse a pod with a claim that cannot be used, or that waits to be bound by the PV controller."""
    for name, is_ephemeral in claim_names(question.pod):
        found = claim(question, question.namespace, name)
        if found is None and is_ephemeral:
            return _refused(
                f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            )
        if found is None:
            return _refused(no_claim(name))
        if (found.get("status") or {}).get("phase") == "Lost":
            return _refused(
                f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume_name(found)}"'
            )
        if found["metadata"].get("deletionTimestamp"):
            return _refused(f'persistentvolumeclaim "{name}" is being deleted')
        if is_ephemeral and not is_owned(found, question.pod):
            return _refused(not_owned(found, question.pod))
    immediate = [one for one in _claims(question) if not is_bound(one) and not _is_delayed(question, one)]
    return _refused("pod has unbound immediate PersistentVolumeClaims") if immediate else None


def refusals(question: Question) -> dict[str, Verdict]:
    """Return the refusals by node."""
    found = {}
    for node in question.nodes:
        flags = {*_bound_flags(question, node), *_delayed_flags(question, node)}
        if flags:
            found[node] = Verdict(UNRESOLVABLE, tuple(reason for reason in _REASONS if reason in flags))
    return found


def scores(question: Question, feasible: list[str]) -> dict[str, int] | None:
    """Return 0 to 100: the less of their storage the volumes take, the more; None without such volumes."""
    if not question.gates.get("StorageCapacityScoring", False) or not _unbound(question):
        return None
    args = question.args.get(NAME) or {}
    shape = args.get("shape") or [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    points = [(point["utilization"], 10 * point["score"]) for point in shape]
    return {node: _score(question, node, points) for node in feasible}


def _score(question: Question, node: str, points: list[tuple[int, int]]) -> int:
    static, dynamic = Counter[str](), Counter[str]()
    sizes, capacities = Counter[str](), Counter[str]()
    chosen: set[str] = set()
    for its_claim in sorted(_unbound(question), key=lambda one: _requested(one) or 0):
        name, requested = class_name(its_claim), _requested(its_claim)
        volume = None
        if _SELECTED_NODE not in annotations(its_claim):
            volume = _match(question, its_claim, node, chosen)
        if volume is not None:
            chosen.add(volume["metadata"]["name"])
            static[name] += requested or 0
            sizes[name] += quantity.whole_units(
                quantity.parse((volume["spec"].get("capacity") or {}).get("storage"))
            )
            continue
        pools = _pools(question, its_claim, node)
        if pools:
            dynamic[name] += requested or 0
            known = [quantity.whole_units(quantity.parse(pool.get("capacity") or 0)) for pool in pools]
            capacities[name] = max(known)
    requests, room = (static, sizes) if static else (dynamic, capacities)
    if not requests:
        return 0
    shares = [
        100 if not room[name] or wanted > room[name] else wanted * 100 // room[name]
        for name, wanted in requests.items()
    ]
    return rounded(Fraction(sum(broken_linear(points, share) for share in shares), len(shares)))


def _unbound(question: Question) -> list[Object]:
    return [one for one in _claims(question) if not is_bound(one)]


def _pools(question: Question, its_claim: Object, node: str) -> list[Object]:
    """Return the pools of known size on the node that are large enough for a claim with a class."""
    storage_class = named(question, "StorageClass", class_name(its_claim))
    assert storage_class is not None
    requested, driver = _requested(its_claim), named(question, "CSIDriver", storage_class["provisioner"])
    if requested is None or driver is None or not driver["spec"].get("storageCapacity"):
        return []
    return [
        pool
        for pool in question.objects("CSIStorageCapacity")
        if _is_large_enough(question, pool, class_name(its_claim), requested, node)
    ]


def _refused(reason: str) -> Verdict:
    return Verdict(UNRESOLVABLE, (reason,))


def _claims(question: Question) -> list[Object]:
    found = [claim(question, question.namespace, name) for name, _ in claim_names(question.pod)]
    return [one for one in found if one is not None]


def _is_delayed(question: Question, its_claim: Object) -> bool:
    storage_class = named(question, "StorageClass", class_name(its_claim))
    if storage_class is None:
        return False
    if storage_class.get("volumeBindingMode") is None:
        name = storage_class["metadata"]["name"]
        raise CycleError(
            f'running PreFilter plugin "{NAME}": VolumeBindingMode not set for StorageClass "{name}"'
        )
    return storage_class["volumeBindingMode"] == "WaitForFirstConsumer" and not volume_name(its_claim)


def _bound_flags(question: Question, node: str) -> set[str]:
    for its_claim in filter(is_bound, _claims(question)):
        volume = named(question, "PersistentVolume", volume_name(its_claim))
        if volume is None:
            return {NO_VOLUME}
        if not _reaches(_translated(question, volume, node), question.node_labels(node)):
            return {NODE_CONFLICT}
    return set()


def _delayed_flags(question: Question, node: str) -> set[str]:
    to_match, to_provision = [], []
    for its_claim in _claims(question):
        if is_bound(its_claim):
            continue
        selected = annotations(its_claim).get(_SELECTED_NODE)
        if selected is None:
            to_match.append(its_claim)
        elif selected != node:
            return {BIND_CONFLICT}
        else:
            to_provision.append(its_claim)
    chosen: set[str] = set()
    for its_claim in sorted(to_match, key=lambda one: _requested(one) or 0):
        volume = _match(question, its_claim, node, chosen)
        if volume is None:
            to_provision.append(its_claim)
        else:
            chosen.add(volume["metadata"]["name"])
    for its_claim in to_provision:
        storage_class = named(question, "StorageClass", class_name(its_claim))
        assert storage_class is not None
        if storage_class.get("provisioner") in (None, "", "kubernetes.io/no-provisioner"):
            return {BIND_CONFLICT}
        if not _is_allowed(storage_class, question.node_labels(node)):
            return {BIND_CONFLICT}
        if not _has_space(question, its_claim, storage_class, node):
            return {NO_SPACE}
    return set()


def _requested(its_claim: Object) -> int | None:
    requests = (its_claim["spec"].get("resources") or {}).get("requests") or {}
    return quantity.whole_units(quantity.parse(requests["storage"])) if "storage" in requests else None


def _match(question: Question, its_claim: Object, node: str, chosen: set[str]) -> Object | None:
    spec, labels = its_claim["spec"], question.node_labels(node)
    best: tuple[int, str, Object] | None = None
    for volume in sorted(question.objects("PersistentVolume"), key=lambda one: str(one["metadata"]["name"])):
        reference, name = volume["spec"].get("claimRef"), volume["metadata"]["name"]
        size = quantity.whole_units(quantity.parse((volume["spec"].get("capacity") or {}).get("storage")))
        if (
            class_name(volume) != class_name(its_claim)
            or name in chosen
            or (reference and not _refers(reference, its_claim))
            or size < (_requested(its_claim) or 0)
            or (volume["spec"].get("volumeMode") or "Filesystem") != (spec.get("volumeMode") or "Filesystem")
            or (volume["spec"].get("volumeAttributesClassName") or "")
            != (spec.get("volumeAttributesClassName") or "")
            or volume["metadata"].get("deletionTimestamp")
        ):
            continue
        if reference:
            return volume if _reaches(volume, labels) else None
        selects = spec.get("selector") is None or selectors.parse(spec["selector"]).matches(labels_of(volume))
        modes = volume["spec"].get("accessModes") or []
        if (
            (volume.get("status") or {}).get("phase") == "Available"
            and selects
            and _reaches(volume, labels)
            and all(mode in modes for mode in spec.get("accessModes") or [])
            and (best is None or (size, name) < best[:2])
        ):
            best = (size, name, volume)
    return None if best is None else best[2]


def _refers(reference: Object, its_claim: Object) -> bool:
    meta = its_claim["metadata"]
    if (reference.get("namespace"), reference.get("name")) != (namespace_of(its_claim), meta["name"]):
        return False
    return not reference.get("uid") or reference["uid"] == meta.get("uid")


def _reaches(volume: Object, labels: Mapping[str, str]) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    if required is None:
        return True
    return any(labels_match(term, labels) for term in required.get("nodeSelectorTerms") or [])


def _is_allowed(storage_class: Object, labels: Mapping[str, str]) -> bool:
    terms = storage_class.get("allowedTopologies") or []
    expressions = [term.get("matchLabelExpressions") or [] for term in terms]
    return not terms or any(
        bool(term) and all(labels.get(one["key"]) in one["values"] for one in term) for term in expressions
    )


def _has_space(question: Question, its_claim: Object, storage_class: Object, node: str) -> bool:
    requested = _requested(its_claim)
    driver = named(question, "CSIDriver", storage_class["provisioner"])
    if requested is None or driver is None or not driver["spec"].get("storageCapacity"):
        return True
    return bool(_pools(question, its_claim, node))


def _is_large_enough(question: Question, pool: Object, of_class: str, requested: int, node: str) -> bool:
    limit = pool.get("maximumVolumeSize") or pool.get("capacity")
    if pool["storageClassName"] != of_class or limit is None:
        return False
    reached = selectors.parse(pool.get("nodeTopology")).matches(question.node_labels(node))
    return reached and quantity.whole_units(quantity.parse(limit)) >= requested


def _translated(question: Question, volume: Object, node: str) -> Object:
    """Return the volume as the CSI driver sees it, where the node says that it took over from the in-tree plugin."""
    field = next((one for one in _MIGRATED if volume["spec"].get(one) is not None), None)
    csi_node = named(question, "CSINode", node)
    if field is None or csi_node is None:
        return volume
    plugin, driver_key = _MIGRATED[field]
    if plugin not in annotations(csi_node).get(_MIGRATED_PLUGINS, "").split(","):
        return volume
    required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    terms: list[dict[str, Any]] = [dict(term) for term in required.get("nodeSelectorTerms") or []]
    labels = labels_of(volume)
    named_keys = [one["key"] for term in terms for one in term.get("matchExpressions") or []]
    beta = False
    for keys in (named_keys, list(labels)):
        if _ZONE in keys:
            break
        if _BETA_ZONE in keys:
            beta = True
            break
    zone_key = _BETA_ZONE if beta else _ZONE
    zones = [
        value
        for term in terms
        for one in term.get("matchExpressions") or []
        if one["key"] == zone_key
        for value in one.get("values") or []
    ]
    renamed = {**({zone_key: driver_key} if zones else {}), **({_BETA_REGION: _REGION} if beta else {})}
    for term in terms:
        term["matchExpressions"] = [
            {**one, "key": renamed.get(one["key"], one["key"])} for one in term.get("matchExpressions") or []
        ]
    from_label = sorted({zone.strip() for zone in labels.get(zone_key, "").split("__")} - {""})
    if from_label and not zones:
        terms = terms or [{"matchExpressions": []}]
        for term in terms:
            term["matchExpressions"].append({"key": driver_key, "operator": "In", "values": from_label})
    if not terms:
        return volume
    return {
        **volume,
        "spec": {**volume["spec"], "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
    }
