"""
Lists: the options of a list or watch request, and a list's pages.

Source: apiserver pkg/apis/meta/internalversion/validation and pkg/storage/etcd3/store.go (kubernetes 1.36).
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.storage.history import Revision
from scheduler.sandbox.devcluster.storage.request_selectors import Matches, matcher
from scheduler.sandbox.devcluster.storage.store import ObjectStore

#: Lists whose rest is kept for the next page; the oldest are forgotten first.
_MAX_RESTS: Final = 256
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


def number_in(query: Mapping[str, str], name: str) -> int | None:
    """Return the number that a parameter states, None without it. Raises: StatusError 400 for another text."""
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
        resource_version=number_in(query, "resourceVersion"),
        limit=number_in(query, "limit") or 0,
        continue_token=query.get("continue", ""),
        timeout_s=number_in(query, "timeoutSeconds"),
        bookmarks=_flag(query.get("allowWatchBookmarks")),
        initial_events=None if sends is None else _flag(sends),
    )


def list_page(
    store: ObjectStore, kind: Kind, namespace: str | None, options: ListOptions
) -> tuple[list[Revision], JsonObject]:
    """
    Return the revisions of the page that the options ask for, and the list's own metadata.

    Raises: StatusError 400 (an invalid token), 410 (a forgotten token), 504 (a version in the future).
    Cost: O(objects in scope).
    """
    if options.continue_token:
        version, selected = _rest(store, options.continue_token)
    else:
        if (requested := options.resource_version or 0) > store.resource_version:
            raise status.too_large_resource_version(requested, store.resource_version)
        revisions, matches = store.history.snapshot(kind, namespace), options.matches
        version, selected = store.resource_version, revisions
        if matches is not None:
            selected = [one for one in revisions if matches(one.obj)]
    metadata: JsonObject = {"resourceVersion": str(version)}
    # A list from cache (resource version 0) has no pages.
    limited = options.limit and (options.resource_version != 0 or options.continue_token)
    if not limited or len(selected) <= options.limit:
        return selected, metadata
    metadata["continue"] = token = str(secrets.randbelow(10**18))
    rest = selected[options.limit :]
    store.rests[token] = version, rest
    if len(store.rests) > _MAX_RESTS:
        del store.rests[next(iter(store.rests))]
    if options.matches is None:
        metadata["remainingItemCount"] = len(rest)
    return selected[: options.limit], metadata


def _rest(store: ObjectStore, token: str) -> tuple[int, list[Revision]]:
    """Return the version of the list that a continue token belongs to, and its objects that were not shown yet."""
    if not token.isdecimal():
        raise status.bad_request("invalid continue token: continue key is not valid: it is no number")
    if token not in store.rests:
        raise status.expired(_TOO_OLD_TO_CONTINUE)
    return store.rests[token]
