"""
Answers of the API server, decoded: pages, watch events, metadata, errors. No IO.

An object stays raw bytes until its owner decodes it, so that a malformed one hurts itself alone.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from scheduler.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerFault,
    Throttled,
    Unauthorized,
)
from scheduler.kube.changes import Key
from scheduler.kube.requests import LeaseSpec
from scheduler.model import nesting

#: Annotation on the bookmark that ends the initial events of a WatchList stream. Source: KEP-3157.
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

T = TypeVar("T")

#: Longest server text kept of an error; pages of HTML from proxies end here.
MESSAGE_LIMIT: Final = 2048

_ERROR_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: Throttled,
}


class _Wire(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Camel-cased, immutable, outside the garbage collector: no cycles can be decoded."""


class ObjectMeta(_Wire, frozen=True):
    """The part of metadata that identifies one version of one object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> Key:
        """Where the object lives; another object may live there later."""
        return Key(self.namespace, self.name)


class _Object(_Wire, frozen=True):
    metadata: ObjectMeta


class ListMeta(_Wire, frozen=True):
    """Version of a list, and what its next page is asked for with; empty in the last one."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class ListPage(_Wire, frozen=True):
    """One page of a list; `items` is None where Go wrote null."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class WatchEvent(_Wire, frozen=True):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and what it is about."""

    type: str
    object: msgspec.Raw


class _BookmarkMeta(_Wire, frozen=True):
    resource_version: str
    annotations: dict[str, str] | None = None


class Bookmark(_Wire, frozen=True):
    """All events up to `metadata.resource_version` were sent."""

    metadata: _BookmarkMeta

    @property
    def ends_initial_events(self) -> bool:
        """Whether the stream has now sent the whole state that a WatchList asked for."""
        return (self.metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true"


class _Details(_Wire, frozen=True):
    retry_after_seconds: int = 0


class _Status(_Wire, frozen=True):
    status: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class Lease(_Wire, frozen=True):
    """A Lease as read; `metadata` is kept raw to be sent back with an update."""

    metadata: msgspec.Raw
    spec: LeaseSpec = LeaseSpec()


class _PodSpec(_Wire, frozen=True):
    node_name: str = ""


class PodPlace(_Wire, frozen=True):
    """Which pod it is and where it runs: what settles a lost bind. An empty node name means unbound."""

    metadata: ObjectMeta
    spec: _PodSpec = _PodSpec()


class ConfigMap(_Wire, frozen=True):
    """A ConfigMap as read."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


_PAGE: Final = msgspec.json.Decoder(ListPage)
_EVENT: Final = msgspec.json.Decoder(WatchEvent)
_OBJECT: Final = msgspec.json.Decoder(_Object)
_BOOKMARK: Final = msgspec.json.Decoder(Bookmark)
_STATUS: Final = msgspec.json.Decoder(_Status)
_LEASE: Final = msgspec.json.Decoder(Lease)
_PLACE: Final = msgspec.json.Decoder(PodPlace)
_CONFIG_MAP: Final = msgspec.json.Decoder(ConfigMap)


def decode_event(line: bytes) -> WatchEvent:
    """One line of a watch. Raises msgspec.DecodeError. About 1.8 µs for a 3 KB pod."""
    return nesting.read(_EVENT.decode, line)


def decode_bookmark(data: bytes | msgspec.Raw) -> Bookmark:
    """A bookmark. Raises msgspec.DecodeError."""
    return nesting.read(_BOOKMARK.decode, data)


def decode_meta(data: bytes | msgspec.Raw) -> ObjectMeta:
    """
    Name, namespace, uid and resourceVersion of an object, whatever else is wrong with it.

    Raises:
        msgspec.DecodeError: if one of the four is not text.

    Cost: O(bytes), about 1.7 µs for a 3 KB pod.
    """
    return nesting.read(_OBJECT.decode, data).metadata


def decode_page(body: bytes) -> ListPage:
    """
    One page of a list, items raw.

    Raises:
        ServerFault: if the body is not a list; a page cut short included.
    """
    return _decoded(_PAGE, body, "a list")


def decode_lease(body: bytes) -> Lease:
    """
    A Lease as the server has it.

    Raises:
        ServerFault: if the body is not a Lease.
    """
    return _decoded(_LEASE, body, "a Lease")


def decode_config_map(body: bytes) -> ConfigMap:
    """
    A ConfigMap as the server has it.

    Raises:
        ServerFault: if the body is not a ConfigMap.
    """
    return _decoded(_CONFIG_MAP, body, "a ConfigMap")


def decode_place(body: bytes | msgspec.Raw) -> PodPlace:
    """
    Identity and node of a pod.

    Raises:
        ServerFault: if the body is not a Pod.
    """
    return _decoded(_PLACE, body, "a Pod")


def error_of(status: int, body: bytes | msgspec.Raw, *, retry_after: str | None = None) -> ApiError:
    """
    The error that an answer of this HTTP status means.

    `body` is a Status object, or whatever a proxy wrote. `retry_after` is the header of that name. After
    a 5xx the outcome of a write is unknown: the server also says so when its storage is slow.
    """
    found = _status_in(body)
    reason = found.reason or _phrase(status)
    message = found.message or bytes(body).decode(errors="replace")
    delay_s = retry_after_s(retry_after)
    if delay_s is None and found.details is not None and found.details.retry_after_seconds > 0:
        delay_s = float(found.details.retry_after_seconds)
    kind = _ERROR_BY_STATUS.get(status) or (Invalid if 400 <= status < 500 else ServerFault)
    text = message[:MESSAGE_LIMIT]
    return kind(status, reason, text, retry_after_s=delay_s, took_effect_unknown=kind is ServerFault)


def error_in_stream(event_object: bytes | msgspec.Raw) -> ApiError:
    """The error that an ERROR event inside a watch means; its Status has the code that HTTP lacks."""
    return error_of(_status_in(event_object).code or 500, event_object)


def retry_after_s(header: str | None) -> float | None:
    """Seconds that a Retry-After header asks to wait, None if absent or a date; the server writes seconds."""
    return float(header) if header and header.strip().isdecimal() else None


def _status_in(body: bytes | msgspec.Raw) -> _Status:
    try:
        return nesting.read(_STATUS.decode, body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Status()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.replace(" ", "")
    except ValueError:
        return "Unknown"


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw, what: str) -> T:
    try:
        return nesting.read(decoder.decode, body)
    except msgspec.DecodeError as error:
        raise ServerFault(200, "BadAnswer", f"not {what}: {error}") from error
