"""Edge cases of volumes: §2 to §5 of the rules of volumes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.support.build import ZONE, Json, node, node_term, pod, selector
from tests.support.cases.row import UR, Row, U
from tests.support.storage_objects import (
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    storage_class,
    volume,
)

RESTRICTIONS: Final = "VolumeRestrictions"
NO_DISK: Final = (U, "node(s) had no available disk")

_IMAGE: Final = {"monitors": ["a", "b"], "pool": "p", "image": "i"}
_OTHER_MONITORS: Final = {**_IMAGE, "monitors": ["c", "d"]}


def with_volumes(*volumes: Json, name: str = "p", on: str | None = None) -> Json:
    """Return a pod with these volume sources."""
    named = [{"name": f"v{index}", **volume} for index, volume in enumerate(volumes)]
    return pod(name, node=on, spec={"volumes": named})


def disk(kind: str, *, read_only: bool | None = None, **fields: object) -> Json:
    """Return a volume source that names a disk itself."""
    return {kind: {**fields, **({} if read_only is None else {"readOnly": read_only})}}


def _disks(id_: str, mine: Json, theirs: Json, *, conflict: bool) -> Row:
    """Return a row whose other pod is on node `n`, while node `m` is empty."""
    objects = [node("n"), node("m"), with_volumes(theirs, name="other", on="n")]
    refused: Mapping[str, tuple[str, ...]] = {"n": NO_DISK} if conflict else {}
    return Row(f"2 {id_}", RESTRICTIONS, objects, with_volumes(mine), refused=refused)


def _gce(name: str = "d", *, read_only: bool | None = None) -> Json:
    return disk("gcePersistentDisk", pdName=name, read_only=read_only)


def _iscsi(iqn: str = "q", *, read_only: bool | None = None) -> Json:
    return disk("iscsi", iqn=iqn, targetPortal="t", lun=0, read_only=read_only)


def _ebs(name: str = "vol-1", *, read_only: bool | None = None) -> Json:
    return disk("awsElasticBlockStore", volumeID=name, read_only=read_only)


def _rbd(image: Mapping[str, object] = _IMAGE, *, read_only: bool | None = None) -> Json:
    return disk("rbd", read_only=read_only, **image)


DISKS: Final = [
    _disks("a GCE disk that one reads", _gce(read_only=True), _gce(), conflict=True),
    _disks("a GCE disk that both read", _gce(read_only=True), _gce(read_only=True), conflict=False),
    _disks("two GCE disks", _gce("x"), _gce("y"), conflict=False),
    _disks("an EBS volume that both read", _ebs(read_only=True), _ebs(read_only=True), conflict=True),
    _disks("two EBS volumes", _ebs("vol-1"), _ebs("vol-2"), conflict=False),
    _disks("an IQN that one writes", _iscsi(), _iscsi(read_only=True), conflict=True),
    _disks("an IQN that both read", _iscsi(read_only=True), _iscsi(read_only=True), conflict=False),
    _disks("an rbd image that both write", _rbd(), _rbd({**_IMAGE, "monitors": ["b", "z"]}), conflict=True),
    _disks("an rbd image by other monitors", _rbd(), _rbd(_OTHER_MONITORS), conflict=False),
    _disks("an rbd image of another pool", _rbd(), _rbd({**_IMAGE, "pool": "q"}), conflict=False),
    _disks("an rbd image that both read", _rbd(read_only=True), _rbd(read_only=True), conflict=False),
    _disks(
        "an rbd pool that is the default",
        _rbd({"monitors": ["a"], "image": "i"}),
        _rbd({**_IMAGE, "pool": "rbd"}),
        conflict=True,
    ),
    _disks("disks of two kinds by one name", _gce("q"), _iscsi("q"), conflict=False),
]

LIMITS: Final = "NodeVolumeLimits"
ZONES: Final = "VolumeZone"
BINDING: Final = "VolumeBinding"
TOO_MANY: Final = (U, "node(s) exceed max volume count")
OTHER_ZONE: Final = (UR, "node(s) had no available volume zone")
NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"


def using(*claims: str, name: str = "p", on: str | None = None) -> Json:
    """Return a pod with these claims."""
    return with_volumes(*({"persistentVolumeClaim": {"claimName": one}} for one in claims), name=name, on=on)


def _limited(id_: str, *objects: Json, full: bool) -> Row:
    """Return a row of a node that attaches two volumes, and of three that are bound to claims."""
    bound = [each for name in "abc" for each in (claim(name, volume=f"v-{name}"), volume(f"v-{name}"))]
    refused: Mapping[str, tuple[str, ...]] = {"n": TOO_MANY} if full else {}
    return Row(
        f"3 {id_}", LIMITS, [node("n"), csi_node("n", d=2), *bound, *objects], using("a"), refused=refused
    )


ATTACH_LIMITS: Final = [
    _limited(
        "two attachments and one more",
        attachment("x", "v-b", "n"),
        attachment("y", "v-c", "n"),
        full=True,
    ),
    _limited(
        "two in use and attached count once",
        using("b", name="other", on="n"),
        attachment("x", "v-b", "n"),
        full=False,
    ),
    Row(
        "3 an inline disk counts as its CSI driver's",
        LIMITS,
        [node("n"), csi_node("n", migrated=(), **{"ebs.csi.aws.com": 0})],
        with_volumes(_ebs()),
        refused={"n": TOO_MANY},
    ),
]


def _zoned(id_: str, labels: Mapping[str, str], on_node: Mapping[str, str], *, refused: bool) -> Row:
    objects = [node("n", labels=on_node), claim("c", volume="v"), volume("v", labels=labels)]
    return Row(f"4 {id_}", ZONES, objects, using("c"), refused={"n": OTHER_ZONE} if refused else {})


ZONE_LABELS: Final = [
    _zoned("a node without labels", {ZONE: "a"}, {}, refused=False),
    _zoned("beta on beta", {BETA_ZONE: "a"}, {BETA_ZONE: "a"}, refused=False),
    _zoned("beta on a node with the newer label", {BETA_ZONE: "a"}, {ZONE: "a"}, refused=False),
    _zoned("newer label on a beta node", {ZONE: "a"}, {BETA_ZONE: "a"}, refused=True),
    _zoned("a zone that is empty voids the label", {ZONE: "c__ "}, {ZONE: "a"}, refused=False),
    Row(
        "4 a volume that is not there",
        ZONES,
        [node("n"), claim("c", volume="v")],
        using("c"),
        prefilter=(UR, 'persistentvolume "v" not found'),
    ),
    Row(
        "4 a claim without class",
        ZONES,
        [node("n"), claim("c")],
        using("c"),
        prefilter=(UR, "PersistentVolumeClaim had no pv name and storageClass name"),
    ),
]

_WAIT: Final = storage_class("w")
_STATIC: Final = storage_class("s", "kubernetes.io/no-provisioner")
_IN_A: Final = [node_term(f"{ZONE} in a")]
_TWO_ZONES: Final = [node("n", labels={ZONE: "a"}), node("m", labels={ZONE: "b"})]


def _asked(id_: str, *objects: Json, wanted: Sequence[str] = ("c",), **refused: Sequence[str]) -> Row:
    """Return a row with nodes `n` of zone a and `m` of zone b; `refused` has the reasons by node."""
    verdicts = {name: (UR, *reasons) for name, reasons in refused.items()}
    return Row(f"5 {id_}", BINDING, [*_TWO_ZONES, *objects], using(*wanted), refused=verdicts)


def _hopeless(id_: str, reason: str, *objects: Json) -> Row:
    return Row(f"5.1 {id_}", BINDING, [*_TWO_ZONES, *objects], using("c"), prefilter=(UR, reason))


UNUSABLE_CLAIMS: Final = [
    _hopeless(
        "lost",
        'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
        claim("c", volume="v", phase="Lost"),
    ),
    _hopeless("deleted", 'persistentvolumeclaim "c" is being deleted', claim("c", terminating=True)),
    _hopeless(
        "bind not completed",
        "pod has unbound immediate PersistentVolumeClaims",
        _WAIT,
        claim("c", "w", volume="v", bound=False),
    ),
    _hopeless("of a missing class", "pod has unbound immediate PersistentVolumeClaims", claim("c", "gone")),
    Row(
        "5.1 an ephemeral volume's claim is not there yet",
        BINDING,
        [node("n")],
        with_volumes({"ephemeral": {}}),
        prefilter=(UR, 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v0"'),
    ),
]

BINDINGS: Final = [
    _asked(
        "the smaller claim takes the smaller volume",
        _STATIC,
        claim("c", "s", request="5Gi"),
        claim("d", "s"),
        volume("v", "s"),
        volume("w", "s", capacity="5Gi"),
        wanted=("c", "d"),
    ),
    _asked(
        "a volume made for the claim comes before smaller ones",
        _STATIC,
        claim("c", "s"),
        volume("v", "s"),
        volume("w", "s", capacity="5Gi", claimed_by="default/c", phase="Bound", terms=_IN_A),
        m=[BIND_CONFLICT],
    ),
    _asked(
        "released volumes and wrong modes",
        _STATIC,
        claim("c", "s"),
        volume("v", "s", phase="Released"),
        volume("w", "s", modes=["ReadOnlyMany"]),
        n=[BIND_CONFLICT],
        m=[BIND_CONFLICT],
    ),
    _asked("a node was selected", _WAIT, claim("c", "w", node="n"), m=[BIND_CONFLICT]),
    _asked(
        "a node was selected: volumes there are not looked at",
        _STATIC,
        claim("c", "s", node="n"),
        volume("v", "s"),
        n=[BIND_CONFLICT],
        m=[BIND_CONFLICT],
    ),
    _asked(
        "a volume of a term about names alone matches every node",
        claim("c", volume="v"),
        volume("v", terms=[node_term(named=["in n"])]),
    ),
    _asked(
        "a volume without terms matches none",
        claim("c", volume="v"),
        volume("v", terms=[]),
        n=[NODE_CONFLICT],
        m=[NODE_CONFLICT],
    ),
    _asked(
        "a migrated volume is reached by the driver's labels",
        claim("c", volume="v"),
        volume("v", terms=_IN_A, source={"gcePersistentDisk": {"pdName": "x"}}),
        csi_node("n", migrated=["kubernetes.io/gce-pd"]),
        n=[NODE_CONFLICT],
        m=[NODE_CONFLICT],
    ),
]


def _pool(**fields: Any) -> Json:
    return capacity("p", "w", **{"topology": selector(f"{ZONE}=a"), **fields})


_TRACKS: Final = csi_driver("d", tracks_capacity=True)
CAPACITIES: Final = [
    _asked("5.4 nothing is requested", _WAIT, _TRACKS, claim("c", "w", request=None)),
    _asked(
        "5.4 a volume may not be so large",
        _WAIT,
        _TRACKS,
        claim("c", "w"),
        _pool(largest="1Mi"),
        n=[NO_SPACE],
        m=[NO_SPACE],
    ),
]

ROWS: Final = [
    *DISKS,
    *ATTACH_LIMITS,
    *ZONE_LABELS,
    *UNUSABLE_CLAIMS,
    *BINDINGS,
    *CAPACITIES,
]
