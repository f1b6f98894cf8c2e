"""
NodeVolumeLimits: a CSI driver attaches a limited number of volumes to a node.

Source: plugins/nodevolumelimits/csi.go (kubernetes 1.36).
"""

from tests.reference.question import (
    UNRESOLVABLE,
    UNSCHEDULABLE,
    CycleError,
    Object,
    Question,
    Verdict,
    namespace_of,
)
from tests.reference.volume_claims import (
    claim,
    claim_names,
    class_name,
    is_owned,
    named,
    no_claim,
    not_owned,
    volume_name,
    volumes_of,
)

NAME = "NodeVolumeLimits"

TOO_MANY = "node(s) exceed max volume count"

#: In-tree plugin: the field of the source, the field of the name in it, and the CSI driver.
_MIGRATED = {
    "kubernetes.io/gce-pd": ("gcePersistentDisk", "pdName", "pd.csi.storage.gke.io"),
    "kubernetes.io/aws-ebs": ("awsElasticBlockStore", "volumeID", "ebs.csi.aws.com"),
    "kubernetes.io/azure-disk": ("azureDisk", "diskURI", "disk.csi.azure.com"),
    "kubernetes.io/cinder": ("cinder", "volumeID", "cinder.csi.openstack.org"),
    "kubernetes.io/portworx-volume": ("portworxVolume", "volumeID", "pxd.portworx.com"),
}

#: Unique names and their drivers.
Attached = dict[str, str]


class _NoClaimError(Exception):
    """A claim of the incoming pod that is not there."""


def refusals(question: Question) -> dict[str, Verdict]:
    found = {}
    for node in question.nodes:
        csi_node = named(question, "CSINode", node)
        try:
            new = _attached(question, question.pod, csi_node, is_incoming=True)
        except _NoClaimError as error:
            found[node] = Verdict(UNRESOLVABLE, (str(error),))
            continue
        if missing_drivers := sorted(
            driver for driver in set(new.values()) if _is_missing(question, driver, csi_node)
        ):
            reason = f"{missing_drivers[0]} CSI driver is not installed on the node"
            found[node] = Verdict(UNSCHEDULABLE, (reason,))
            continue
        limits = _limits(csi_node)
        if not new or not limits:
            continue
        attached: Attached = {}
        for pod in question.pods_on[node]:
            attached.update(_attached(question, pod, csi_node, is_incoming=False))
        missing = {name: driver for name, driver in new.items() if name not in attached}
        used = {**attached, **_attachments(question, node)}
        for driver in set(missing.values()):
            total = list(used.values()).count(driver) + list(missing.values()).count(driver)
            if driver in limits and total > limits[driver]:
                found[node] = Verdict(UNSCHEDULABLE, (TOO_MANY,))
    return found


def _is_missing(question: Question, driver: str, csi_node: Object | None) -> bool:
    csi_driver = named(question, "CSIDriver", driver)
    if not question.gates.get("VolumeLimitScaling", False) or csi_driver is None:
        return False
    drivers = ((csi_node or {}).get("spec") or {}).get("drivers") or []
    is_required = bool(csi_driver["spec"].get("preventPodSchedulingIfMissing"))
    return is_required and driver not in {each["name"] for each in drivers}


def _limits(csi_node: Object | None) -> dict[str, int]:
    drivers = ((csi_node or {}).get("spec") or {}).get("drivers") or []
    counts = {driver["name"]: (driver.get("allocatable") or {}).get("count") for driver in drivers}
    return {name: count for name, count in counts.items() if count is not None}


def _attachments(question: Question, node: str) -> Attached:
    found = {}
    for attachment in question.objects("VolumeAttachment"):
        spec = attachment["spec"]
        volume = named(question, "PersistentVolume", spec["source"].get("persistentVolumeName") or "")
        if spec["nodeName"] == node and spec["attacher"] and volume is not None and volume["spec"].get("csi"):
            found[f"{spec['attacher']}/{volume['spec']['csi']['volumeHandle']}"] = spec["attacher"]
    return found


def _attached(question: Question, pod: Object, csi_node: Object | None, *, is_incoming: bool) -> Attached:
    found: Attached = {}
    for name, is_ephemeral in claim_names(pod):
        its_claim = claim(question, namespace_of(pod), name)
        if its_claim is None:
            if is_incoming:
                raise _NoClaimError(f"looking up PVC {namespace_of(pod)}/{name}: {no_claim(name)}")
            continue
        if is_ephemeral and is_incoming and not is_owned(its_claim, pod):
            raise CycleError(f'running PreFilter plugin "{NAME}": {not_owned(its_claim, pod)}')
        found.update(_of_claim(question, its_claim, csi_node))
    for volume in volumes_of(pod) if csi_node is not None else []:
        for field, name_field, driver in _MIGRATED.values():
            if volume.get(field) is not None:
                handle = _handle(field, volume[field][name_field], {})
                found[f"{driver}/{handle}"] = driver
    return found


def _of_claim(question: Question, its_claim: Object, csi_node: Object | None) -> Attached:
    volume = named(question, "PersistentVolume", volume_name(its_claim))
    if volume is None:
        return _pending(question, its_claim, csi_node)
    csi = volume["spec"].get("csi")
    if csi is not None:
        return {f"{csi['driver']}/{csi['volumeHandle']}": csi["driver"]}
    for field, name_field, driver in _MIGRATED.values() if csi_node is not None else ():
        if volume["spec"].get(field) is not None:
            labels = volume["metadata"].get("labels") or {}
            return {f"{driver}/{_handle(field, volume['spec'][field][name_field], labels)}": driver}
    return {}


def _pending(question: Question, its_claim: Object, csi_node: Object | None) -> Attached:
    storage_class = named(question, "StorageClass", class_name(its_claim))
    provisioner = (storage_class or {}).get("provisioner")
    if not provisioner:
        return {}
    if provisioner in _MIGRATED and csi_node is not None:
        provisioner = _MIGRATED[provisioner][2]
    return {f"{provisioner}/pending-{namespace_of(its_claim)}/{its_claim['metadata']['name']}": provisioner}


def _handle(field: str, name: str, labels: Object) -> str:
    if field == "awsElasticBlockStore":
        return name.split("/")[-1] if name.startswith("aws://") else name
    if field != "gcePersistentDisk":
        return name
    zone = (
        labels.get("failure-domain.beta.kubernetes.io/zone")
        or labels.get("topology.kubernetes.io/zone")
        or ""
    )
    zones = zone.split("__")
    if len(zones) > 1:
        return f"projects/UNSPECIFIED/regions/{'-'.join(zones[0].split('-')[:2])}/disks/{name}"
    return f"projects/UNSPECIFIED/zones/{zone or 'UNSPECIFIED'}/disks/{name}"
