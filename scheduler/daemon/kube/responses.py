"""
Decodes responses of the API server: pages, watch events, metadata, errors. No IO.

Objects of a page or event stay raw bytes until the reflector decodes them one by one, so that a malformed object does
not affect the others.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from scheduler.daemon.kube.requests import LeaseSpec
from scheduler.engine.model import nesting
from scheduler.engine.model.semantics import Version
from scheduler.engine.model.wire import Wire
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

#: Annotation on the bookmark that ends the initial events of a WatchList stream. Source: KEP-3157.
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

T = TypeVar("T")

#: Longest error text that is kept; proxies send whole HTML pages.
MESSAGE_LIMIT: Final = 2048

_ERROR_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: Throttled,
}
_KNOWN_STATUSES: Final = frozenset(HTTPStatus)


class _VersionInfo(Wire, frozen=True):
    """The body of /version. `emulation_*`: empty before 1.33, and where the server emulates no other version."""

    major: str = ""
    minor: str = ""
    emulation_major: str = ""
    emulation_minor: str = ""


class ObjectMeta(Wire, frozen=True):
    """The part of metadata that identifies one version of one object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """Namespace and name; the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Object(Wire, frozen=True):
    metadata: ObjectMeta


class ListMeta(Wire, frozen=True):
    """The version of a list, and the token for its next page; '' on the last page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class ListPage(Wire, frozen=True):
    """One page of a list; `items` is None if Go wrote null."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class WatchEvent(Wire, frozen=True):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and its object."""

    type: str
    object: msgspec.Raw


class _BookmarkMeta(Wire, frozen=True):
    resource_version: str
    annotations: dict[str, str] | None = None


class Bookmark(Wire, frozen=True):
    """Says that all events up to `metadata.resource_version` were sent."""

    metadata: _BookmarkMeta

    @property
    def ends_initial_events(self) -> bool:
        """True if this bookmark completes the initial state of a WatchList stream."""
        return (self.metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true"


class _Details(Wire, frozen=True):
    retry_after_seconds: int = 0


class _Status(Wire, frozen=True):
    status: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class Lease(Wire, frozen=True):
    """A Lease as read; `metadata` stays raw, to be sent back with an update."""

    metadata: msgspec.Raw
    spec: LeaseSpec = LeaseSpec()


class _StoredMeta(Wire, frozen=True):
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _ClaimRef(Wire, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _WrittenSpec(Wire, frozen=True):
    """`node_name` of a pod, empty if it is unbound; `claim_ref` of a PersistentVolume."""

    node_name: str = ""
    claim_ref: _ClaimRef | None = None


class WrittenObject(Wire, frozen=True):
    """The parts of a pod, a PersistentVolume or a claim that show whether a write took effect."""

    metadata: _StoredMeta
    spec: _WrittenSpec = _WrittenSpec()


_PAGE: Final = msgspec.json.Decoder(ListPage)
_EVENT: Final = msgspec.json.Decoder(WatchEvent)
_OBJECT: Final = msgspec.json.Decoder(_Object)
_BOOKMARK: Final = msgspec.json.Decoder(Bookmark)
_STATUS: Final = msgspec.json.Decoder(_Status)
_LEASE: Final = msgspec.json.Decoder(Lease)
_WRITTEN: Final = msgspec.json.Decoder(WrittenObject)
_VERSION: Final = msgspec.json.Decoder(_VersionInfo)


def decode_event(line: bytes) -> WatchEvent:
    """Decode one line of a watch. Raises msgspec.DecodeError."""
    return nesting.read(_EVENT.decode, line)


def decode_bookmark(data: bytes | msgspec.Raw) -> Bookmark:
    """Decode a bookmark. Raises msgspec.DecodeError."""
    return nesting.read(_BOOKMARK.decode, data)


def decode_meta(data: bytes | msgspec.Raw) -> ObjectMeta:
    """Return name, namespace, uid and version, whatever else is wrong. Raises DecodeError if one is not text."""
    return nesting.read(_OBJECT.decode, data).metadata


def decode_page(body: bytes) -> ListPage:
    """Decode one page of a list, items raw. Raises ServerFault for another body, or one that is truncated."""
    return _decode(_PAGE, body, "a list")


def decode_lease(body: bytes) -> Lease:
    """Decode a Lease. Raises ServerFault for another body."""
    return _decode(_LEASE, body, "a Lease")


def shows_free_lease(line: bytes) -> bool:
    """Return whether a line of a watch shows a Lease deleted or without a holder. Raises ServerFault for no event."""
    event = _decode(_EVENT, line, "a watch event")
    if event.type in {"ADDED", "MODIFIED"}:
        return not decode_lease(event.object).spec.holder_identity
    return event.type == "DELETED"


def decode_written(body: bytes | msgspec.Raw, what: str = "a Pod") -> WrittenObject:
    """Decode the parts of an object that show a write. Raises ServerFault, which says that it is not `what`."""
    return _decode(_WRITTEN, body, what)


def api_error(status: int, body: bytes | msgspec.Raw, *, retry_after: str | None = None) -> ApiError:
    """
    Return the error that a response of this HTTP status means.

    `body` is a Status object, or any text from a proxy. `retry_after` is the header of that name. After a 5xx the
    outcome of a write is unknown: the server also sends it when its storage is slow.
    """
    found = _status_in(body)
    reason = found.reason or _reason_phrase(status)
    message = found.message or bytes(body).decode(errors="replace")
    delay_s = retry_after_s(retry_after)
    if delay_s is None and found.details is not None and found.details.retry_after_seconds > 0:
        delay_s = float(found.details.retry_after_seconds)
    kind = _ERROR_BY_STATUS.get(status) or (Invalid if 400 <= status < 500 else ServerFault)
    text = message[:MESSAGE_LIMIT]
    return kind(status, reason, text, retry_after_s=delay_s, took_effect_unknown=kind is ServerFault)


def watch_error(event_object: bytes | msgspec.Raw) -> ApiError:
    """Return the error that an ERROR event of a watch means; its Status contains the code."""
    return api_error(_status_in(event_object).code or 500, event_object)


def retry_after_s(header: str | None) -> float | None:
    """Return the seconds of a Retry-After header, None if it is absent or a date, which API servers do not send."""
    return float(header) if header and header.strip().isdecimal() else None


def _status_in(body: bytes | msgspec.Raw) -> _Status:
    try:
        return nesting.read(_STATUS.decode, body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Status()


def _reason_phrase(status: int) -> str:
    return HTTPStatus(status).phrase.replace(" ", "") if status in _KNOWN_STATUSES else "Unknown"


def _decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw, what: str) -> T:
    try:
        return nesting.read(decoder.decode, body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ServerFault(200, "BadAnswer", f"not {what}: {error}") from error


def decode_version(body: bytes) -> Version:
    """
    Return the version that the server emulates, or else its own; providers may write its minor version as "30+".

    Source: apimachinery/pkg/version/types.go, Info (kubernetes 1.36). Raises Invalid.
    """
    try:
        info = nesting.read(_VERSION.decode, body)
        major, minor = info.emulation_major or info.major, info.emulation_minor or info.minor
        return Version(int(major), int(minor.rstrip("+")))
    except (msgspec.DecodeError, ValueError) as error:
        raise Invalid(200, "BadAnswer", f"not a version: {error}") from error
