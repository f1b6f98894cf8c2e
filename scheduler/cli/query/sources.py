"""The cluster, configuration and manifests that the arguments of a command name."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from scheduler.cli import settings_flags
from scheduler.cli.source_flags import namespace_of
from scheduler.daemon.settings.resolved import Settings
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.manifests import Manifest
from scheduler.tools.explain.formats.terminal import LiveLines
from scheduler.tools.explain.input_files import add_other_objects, parse_manifest_files
from scheduler.tools.explain.priority_classes import add_priorities, priority_class_named
from scheduler.tools.explain.recordings import read_snapshot
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster

#: For a download: name, connection, redirections, body.
_LIMIT_S: Final = 60
_EXPECTED: Final = "a manifest"


def read_with_manifests(
    args: argparse.Namespace, priority_class: str | None = None
) -> tuple[LoadedCluster, Sequence[Manifest]]:
    """
    Return the cluster with what the documents of all `-f` have beside pods, and the documents that create pods.

    `priority_class`: the name or value of the class of all these pods; None for those that the manifests name. What was
    read and what was left out is said on standard error. Raises SettingsError.
    """
    settings = settings_flags.settings(args)
    namespace, semantics = namespace_of(args), settings.semantics
    file = parse_manifest_files(args.filename, _download, namespace=namespace, semantics=semantics)
    # A snapshot has no classes.
    read_class = partial(_read_priority_class, args) if args.on is None else None
    of_flag = None
    if priority_class is not None:
        of_flag = priority_class_named(priority_class, "--priority-class", read_class)
    cluster, _ = read_cluster(args, settings)
    add_priorities(file, cluster, read_class, of_flag)
    if text := add_other_objects(file, cluster):
        print(text, file=sys.stderr)
    return cluster, file.manifests


def _read_priority_class(args: argparse.Namespace, name: str) -> bytes | None:
    import asyncio

    from scheduler.cli.query import listing

    return asyncio.run(listing.read_priority_class(args, name))


def read_cluster(
    args: argparse.Namespace,
    settings: Settings,
    pods: Sequence[tuple[str, str]] = (),
) -> tuple[LoadedCluster, dict[tuple[str, str], bytes | None]]:
    """
    Return the cluster, and the JSON of the pods of these namespaces and names, which a snapshot does not have: None for
    one that does not exist, and nothing else is read then.

    Without a flag for it, the version to emulate is that of the API server; a snapshot does not have it.

    Raises SettingsError.
    """
    stored: dict[tuple[str, str], bytes | None] = {}
    if args.on is not None:
        cluster = LoadedCluster(settings.at(None))
        read_snapshot(args.on, cluster)
    else:
        import asyncio

        from scheduler.cli.query import listing

        cluster, stored = asyncio.run(listing.read_cluster(args, settings, pods))
    cluster.on_step = LiveLines(sys.stderr, os.environ).say
    return cluster, stored


def _download(url: str, limit_bytes: int) -> bytes:
    """Return what is at the URL, by the proxy that the environment names. Raises SettingsError."""
    import asyncio  # it and aiohttp only for a URL: they take 0.2 s

    return asyncio.run(_get(url, limit_bytes))


async def _get(url: str, limit_bytes: int) -> bytes:
    import aiohttp

    from scheduler.daemon.kube.proxies import proxy_of

    body = bytearray()
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_LIMIT_S)) as session,
            session.get(url, proxy=proxy_of(url, os.environ)) as response,
        ):
            if not response.ok:
                raise SettingsError(url, "", f"status {response.status} {response.reason}", _EXPECTED)
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > limit_bytes:
                    raise SettingsError(url, "", f"more than {limit_bytes} bytes", "fewer")
    except aiohttp.ClientConnectorDNSError as error:
        raise SettingsError(url, "", f"no address is known of the host {error.host}", "") from error
    except aiohttp.ClientConnectorError as error:
        is_refused = error.errno == errno.ECONNREFUSED
        found = f"nothing listens on {error.host}:{error.port}" if is_refused else str(error)
        raise SettingsError(url, "", found, "") from error
    except TimeoutError as error:
        raise SettingsError(url, "", f"no answer in {_LIMIT_S} s", _EXPECTED) from error
    except (aiohttp.ClientError, ValueError) as error:
        raise SettingsError(url, "", str(error) or type(error).__name__, _EXPECTED) from error
    return bytes(body)
