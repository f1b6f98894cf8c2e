"""
Lists: the options of a list or watch request, and a list's pages.

Source: apiserver pkg/apis/meta/internalversion/validation, pkg/storage/continue.go and
pkg/storage/etcd3/store.go (kubernetes 1.36).
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.storage.history import Revision, Snapshot
from scheduler.sandbox.devcluster.storage.request_selectors import Matches, matcher
from scheduler.sandbox.devcluster.storage.store import ObjectStore

_CONTINUE_FORMAT: Final = "meta.k8s.io/v1"
_TOO_OLD_TO_CONTINUE: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter."
)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The query parameters of a list or watch, parsed. `resource_version` is None if it was not given."""

    matches: Matches | None
    resource_version: int | None
    limit: int
    continue_token: str
    timeout_s: int | None
    bookmarks: bool
    initial_events: bool | None


def _flag(text: str | None) -> bool:
    return text is not None and text.lower() not in ("", "0", "false")


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def parse_options(kind: Kind, query: Mapping[str, str]) -> ListOptions:
    """
    Return the options of a list or watch of objects of `kind`.

    Raises: StatusError 400 if a parameter cannot be read. Differences: parameters may contradict each other, and a
        list shows the newest state whatever version it asks for.
    """
    sends = query.get("sendInitialEvents")
    return ListOptions(
        matches=matcher(kind, query.get("labelSelector"), query.get("fieldSelector")),
        resource_version=_number(query, "resourceVersion"),
        limit=_number(query, "limit") or 0,
        continue_token=query.get("continue", ""),
        timeout_s=_number(query, "timeoutSeconds"),
        bookmarks=_flag(query.get("allowWatchBookmarks")),
        initial_events=None if sends is None else _flag(sends),
    )


def list_page(
    store: ObjectStore, kind: Kind, namespace: str | None, options: ListOptions
) -> tuple[list[Revision], JsonObject]:
    """
    Return the revisions of the page that the options ask for, and the list's own metadata.

    Raises: StatusError 400 (an invalid token), 410 (a forgotten version or token), 504 (a version in the future).
    Cost: O(objects in scope).
    """
    if options.continue_token:
        snapshot, after = _continued(store, kind, namespace, options)
    else:
        if (requested := options.resource_version or 0) > store.resource_version:
            raise status.too_large_resource_version(requested, store.resource_version)
        snapshot, after = store.history.snapshot(kind, namespace), ""
    selected = [
        one
        for one in snapshot.revisions
        if one.key > after and (options.matches is None or options.matches(one.obj))
    ]
    metadata: JsonObject = {"resourceVersion": str(snapshot.resource_version)}
    # A list from cache (resource version 0) has no pages.
    limited = options.limit and (options.resource_version != 0 or options.continue_token)
    if limited and len(selected) > options.limit:
        rest = len(selected) - options.limit
        selected = selected[: options.limit]
        metadata["continue"] = _token(snapshot.resource_version, selected[-1].key)
        if options.matches is None:
            metadata["remainingItemCount"] = rest
    return selected, metadata


def _continued(
    store: ObjectStore, kind: Kind, namespace: str | None, options: ListOptions
) -> tuple[Snapshot, str]:
    """Return the snapshot that a continue token belongs to, and the key of the last object already shown."""
    version, last_key = _parsed_token(options.continue_token)
    snapshot = store.history.snapshot_at(kind, version, namespace)
    if snapshot is None:
        raise status.expired(_TOO_OLD_TO_CONTINUE)
    return snapshot, last_key


def _token(resource_version: int, last_key: str) -> str:
    fields_of_token = {"v": _CONTINUE_FORMAT, "rv": resource_version, "start": f"{last_key}\x00"}
    return base64.urlsafe_b64encode(msgspec.json.encode(fields_of_token)).decode().rstrip("=")


def _parsed_token(token: str) -> tuple[int, str]:
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(found["rv"]), str(found["start"]).rstrip("\x00")
    except (binascii.Error, ValueError, TypeError, KeyError) as error:
        raise status.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
