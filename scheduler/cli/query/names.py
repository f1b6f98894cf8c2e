"""Reads the names of objects from an API server, for a Tab."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from scheduler.cli.query.listing import connect
from scheduler.cli.source_flags import namespace_of
from scheduler.daemon.kube.requests import Resource, list_page
from scheduler.errors import ApiError, SettingsError

_TIMEOUT_S: Final = 2.0


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    labels: Mapping[str, str] | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Page(msgspec.Struct, frozen=True):
    items: tuple[_Object, ...] = ()


def listed(args: argparse.Namespace, path: str) -> Sequence[tuple[str, Mapping[str, str]]]:
    """Return names and labels of the first objects at the path, whose `{}` is the namespace; none without an answer."""
    try:
        page = asyncio.run(_first_page(args, path))
    except (ApiError, SettingsError, msgspec.DecodeError, TimeoutError):
        return ()
    return [(each.metadata.name, each.metadata.labels or {}) for each in page.items]


async def _first_page(args: argparse.Namespace, path: str) -> _Page:
    given = vars(args)  # not every command has both
    kubeconfig, context = given.get("kubeconfig"), given.get("context")
    path = path.format(namespace_of(args)) if "{}" in path else path
    async with asyncio.timeout(_TIMEOUT_S), connect(kubeconfig, context, os.environ) as client:
        answer = await client.request(list_page(Resource(path)), timeout_s=_TIMEOUT_S)
    return msgspec.json.decode(answer, type=_Page)
