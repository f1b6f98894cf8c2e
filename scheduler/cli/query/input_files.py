"""Reads manifest files and snapshot files. Sizes are bounded, and every error is one line with the file's name."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import msgspec

from scheduler.cli.query.cluster import LoadedCluster
from scheduler.errors import SettingsError
from scheduler.explain.explanation import API_VERSION
from scheduler.explain.manifests import Manifest
from scheduler.explain.snapshot_file import KIND, SECTIONS
from scheduler.settings.manifest_documents import parse_manifests

STANDARD_INPUT: Final = "-"
#: A snapshot of 150,000 pods has about 150 MB.
_SNAPSHOT_LIMIT_BYTES: Final = 2 << 30
_MANIFEST_LIMIT_BYTES: Final = 4 << 20


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The documents of a manifest file: the ones that create pods, and all others."""

    manifests: list[Manifest]
    other_documents: list[Mapping[str, object]]

    def add_other_objects(self, cluster: LoadedCluster) -> None:
        """Add other documents to the cluster if the scheduler watches their kind, as if they were applied first."""
        for document in self.other_documents:
            for watched in cluster.kinds:
                if watched.kind == document.get("kind"):
                    cluster.apply(cluster.decode(watched, msgspec.Raw(msgspec.json.encode(document))))


def parse_manifest_file(file: str, *, namespace: str, gates: Mapping[str, bool]) -> ManifestFile:
    """
    Return the documents of a file ("-": standard input).

    At least one has to be of a kind that creates pods. Documents of other kinds are not checked.

    Raises SettingsError, or InvalidSettingsError with one line per problem.
    """
    source = "standard input" if file == STANDARD_INPUT else file
    text = _decode(_read(file, source, _MANIFEST_LIMIT_BYTES, "a file with a manifest"), source)
    return ManifestFile(*parse_manifests(text, source, namespace=namespace, gates=gates))


def read_snapshot(file: str, cluster: LoadedCluster) -> None:
    """Add the snapshot's objects to `cluster`. Raises SettingsError if it is no snapshot or of another version."""
    body = _read(file, file, _SNAPSHOT_LIMIT_BYTES, "a file made by the command snapshot")
    try:
        head = msgspec.json.decode(body, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(file, "", str(error), f"JSON of a {KIND}") from error
    for field, found, expected in (("apiVersion", head.api_version, API_VERSION), ("kind", head.kind, KIND)):
        if found != expected:
            raise SettingsError(file, field, repr(found[:80]) if found else "nothing", expected)
    try:
        sections = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        by_kind = {
            watched.kind: msgspec.json.decode(
                sections.get(SECTIONS[watched.kind]) or b"[]", type=list[msgspec.Raw]
            )
            for watched in cluster.kinds
        }
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(file, "", str(error), "lists of objects") from error
    for watched in cluster.kinds:
        for raw in by_kind[watched.kind]:
            cluster.apply(cluster.decode(watched, raw))


def _read(file: str, source: str, limit_bytes: int, expected: str) -> bytes:
    try:
        if file == STANDARD_INPUT:
            return _bounded(sys.stdin.buffer, source, limit_bytes)
        with Path(file).open("rb") as stream:
            return _bounded(stream, source, limit_bytes)
    except FileNotFoundError as error:
        raise SettingsError(source, "", "no such file", expected) from error
    except (OSError, ValueError) as error:
        raise SettingsError(source, "", getattr(error, "strerror", None) or str(error), expected) from error


def _bounded(stream: IO[bytes], source: str, limit_bytes: int) -> bytes:
    body = stream.read(limit_bytes + 1)
    if len(body) > limit_bytes:
        raise SettingsError(source, "", f"more than {limit_bytes} bytes", "fewer")
    return body


def _decode(body: bytes, source: str) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(source, "", f"no UTF-8 at byte {error.start}", "UTF-8 text") from error
