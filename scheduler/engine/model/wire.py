"""
API objects as they are in JSON: only the fields that a scheduler reads, decoded by msgspec.

Here are the parts that several kinds share; pods are in `pod_wire`, and the fields of other kinds where their classes
are, see `json_fields`. A field of the wrong type is a DecodeError that names its path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from scheduler.engine.model import nesting
from scheduler.engine.syntax.quantity import QuantityError
from scheduler.engine.syntax.selectors import SelectorError

_T = TypeVar("_T")

#: A quantity in JSON: a string or a bare number; null counts as 0.
QuantityText = str | int | float | None

#: The API server refuses other values; files may have any.
Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
#: Seconds, which files have in Go's syntax, such as "15s".
Duration: TypeAlias = Annotated[float, Meta(description="a duration in Go's syntax")]


class MalformedObjectError(ValueError):
    """An object that no API server would store. The watch reports it and continues; retrying is of no use."""


#: What decoding raises for such an object, and parsing, whose errors name field and problem alone.
_FAULTS: Final = (
    *(msgspec.DecodeError, UnicodeDecodeError, RecursionError),
    *(QuantityError, SelectorError, MalformedObjectError),
)


class Wire(Struct, frozen=True, gc=False, rename="camel"):
    """A struct with camelCase field names; not tracked by the garbage collector, since JSON has no cycles."""


class Owner(Wire, frozen=True):
    """metadata.ownerReferences[] of a pod, which default spread selectors read."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False


class OwnerReference(Owner, frozen=True):
    """metadata.ownerReferences[] of a claim."""

    uid: str = ""


class Metadata(Wire, frozen=True):
    """metadata of any object."""

    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: tuple[str, ...] | None = None
    creation_timestamp: str | None = None
    owner_references: tuple[Owner, ...] = ()


def decoded(decode: Callable[[bytes | msgspec.Raw], _T], kind: str, data: bytes | msgspec.Raw) -> _T:
    """Return what `read` does; raise MalformedObjectError, which names kind, field and problem."""
    try:
        return read(decode, data)
    except _FAULTS as error:
        raise MalformedObjectError(f"{kind}: {error}") from error


def read(decode: Callable[[bytes | msgspec.Raw], _T], data: bytes | msgspec.Raw) -> _T:
    """
    Return what `decode` makes of a JSON document.

    null counts as absent, as in Go: if decoding fails on a document with nulls, it is decoded again without them.
    """
    try:
        return nesting.read(decode, data)
    except msgspec.ValidationError:
        if b"null" not in bytes(data):
            raise
        document = nesting.read(msgspec.json.decode, data)
        return decode(msgspec.json.encode(_without_nulls(document)))


#: Maps in which a null is a value that does not count: without it a selector would select more.
_MAPS: Final = frozenset(
    {"labels", "annotations", "matchLabels", "nodeLabels", "nodeSelector", "selector", "domainWeights"}
)


def _without_nulls(value: object, name: str = "") -> object:
    """Return the value of the field of that name without nulls; parameters of a driver's own stay as written."""
    if isinstance(value, dict) and name != "opaque":
        return {
            key: _without_nulls(inner, key)
            for key, inner in value.items()
            if inner is not None or name in _MAPS
        }
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


class Named(Wire, frozen=True):
    """An object; only its name is read."""

    name: str = ""


class Expression(Wire, frozen=True, omit_defaults=True):
    """matchExpressions[] of label selectors."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(Wire, frozen=True):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Expression, ...] | None = None


class GcePersistentDisk(Wire, frozen=True):
    """gcePersistentDisk of a volume."""

    pd_name: str = ""
    read_only: bool | None = None


class VolumeId(Wire, frozen=True):
    """awsElasticBlockStore, cinder and portworxVolume of a volume."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class AzureDisk(Wire, frozen=True):
    """azureDisk of a volume."""

    disk_uri: str = msgspec.field(name="diskURI", default="")


class MigratedDisk(Wire, frozen=True):
    """The disk that a volume of a pod or a PersistentVolume names by an in-tree plugin; one at most."""

    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: VolumeId | None = None
    azure_disk: AzureDisk | None = None
    cinder: VolumeId | None = None
    portworx_volume: VolumeId | None = None
