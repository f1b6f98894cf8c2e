"""Edge cases of volumes: §2 to §5 of the rules of volumes."""

from collections.abc import Mapping
from typing import Final

from tests.support.build import Json, node, pod
from tests.support.cases.row import Row, U

RESTRICTIONS: Final = "VolumeRestrictions"
NO_DISK: Final = (U, "node(s) had no available disk")

_IMAGE: Final = {"monitors": ["a", "b"], "pool": "p", "image": "i"}
_OTHER_MONITORS: Final = {**_IMAGE, "monitors": ["c", "d"]}


def with_volumes(*volumes: Json, name: str = "p", on: str | None = None) -> Json:
    """A pod with these volume sources."""
    named = [{"name": f"v{index}", **volume} for index, volume in enumerate(volumes)]
    return pod(name, node=on, spec={"volumes": named})


def disk(kind: str, *, read_only: bool | None = None, **fields: object) -> Json:
    """A volume source that names a disk itself."""
    return {kind: {**fields, **({} if read_only is None else {"readOnly": read_only})}}


def _disks(id_: str, mine: Json, theirs: Json, *, conflict: bool) -> Row:
    """The other pod is on node `n`; node `m` is empty."""
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
    _disks("a GCE disk that both write", _gce(), _gce(), conflict=True),
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
    _disks(
        "an Azure disk twice",
        disk("azureDisk", diskName="d", diskURI="u"),
        disk("azureDisk", diskName="d", diskURI="u"),
        conflict=False,
    ),
]

ROWS: Final = DISKS
