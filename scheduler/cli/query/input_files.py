"""Reads manifest files and snapshot files. Sizes are bounded, and every error is one line with the file's name."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeGuard

import msgspec

from scheduler.cli.query.cluster import LoadedCluster
from scheduler.errors import SettingsError
from scheduler.explain.explanation import API_VERSION
from scheduler.explain.manifests import KINDS, Manifest, ManifestError, parse_manifest
from scheduler.explain.new_claims import created
from scheduler.explain.snapshot_file import KIND, SECTIONS
from scheduler.model.volumes import StorageKind
from scheduler.settings.documents import read_document
from scheduler.settings.problems import Problems, described

STANDARD_INPUT: Final = "-"
#: A snapshot of 150,000 pods has about 150 MB.
_SNAPSHOT_LIMIT_BYTES: Final = 2 << 30
_MANIFEST_LIMIT_BYTES: Final = 4 << 20
_MAX_DOCUMENTS: Final = 100
_SEPARATOR: Final = re.compile(r"^---[ \t]*(?:#.*)?\r?$", re.MULTILINE)


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The documents of a manifest file: the ones that create pods, and all others."""

    manifests: list[Manifest]
    other_documents: list[Mapping[str, object]]
    #: Of the documents that name none.
    namespace: str

    def add_other_objects(self, cluster: LoadedCluster) -> None:
        """Add other documents to the cluster if the scheduler watches their kind, as if they were applied first."""
        # Claims last: what becomes of them depends on the volumes and classes.
        for document in sorted(self.other_documents, key=_is_claim):
            for watched in cluster.kinds:
                if watched.kind == document.get("kind"):
                    cluster.create(watched, created(document, self.namespace))


def parse_manifest_file(file: str, *, namespace: str, gates: Mapping[str, bool]) -> ManifestFile:
    """
    Return the documents of a file ("-": standard input).

    At least one has to be of a kind that creates pods. Documents of other kinds are not checked.

    Raises SettingsError, or InvalidSettingsError with one line per problem.
    """
    source = "standard input" if file == STANDARD_INPUT else file
    text = _decode(_read(file, source, _MANIFEST_LIMIT_BYTES, "a file with a manifest"), source)
    documents = list(_documents(text, source))
    if not documents:
        raise SettingsError(source, "", "nothing", "at least one manifest")
    if len(documents) > _MAX_DOCUMENTS:
        raise SettingsError(source, "", f"{len(documents)} documents", f"at most {_MAX_DOCUMENTS}")
    manifests: list[Manifest] = []
    other_documents: list[Mapping[str, object]] = []
    for number, document in enumerate(documents, 1):
        if _creates_no_pods(document):
            other_documents.append(document)
            continue
        where = source if len(documents) == 1 else f"{source}: document {number}"
        try:
            manifests.append(parse_manifest(document, namespace=namespace, gates=gates))
        except ManifestError as error:
            raise SettingsError(where, error.field, error.found, error.expected) from error
    if not manifests:
        kinds = ", ".join(dict.fromkeys(str(document["kind"])[:60] for document in other_documents[:5]))
        raise SettingsError(source, "kind", kinds, f"one of {', '.join(KINDS)}")
    _check_unique(manifests, source)
    return ManifestFile(manifests, other_documents, namespace)


def _is_claim(document: Mapping[str, object]) -> bool:
    return document.get("kind") == StorageKind.CLAIM


def _creates_no_pods(document: object) -> TypeGuard[Mapping[str, object]]:
    kind = document.get("kind") if isinstance(document, Mapping) else None
    return isinstance(kind, str) and bool(kind) and kind not in KINDS


def _check_unique(manifests: Sequence[Manifest], source: str) -> None:
    named = Counter((manifest.kind, manifest.namespace, manifest.name) for manifest in manifests)
    for (kind, namespace, name), count in named.items():
        if count > 1:
            raise SettingsError(source, f"{kind} {namespace}/{name}", f"{count} documents", "one")


def _documents(text: str, source: str) -> Iterator[object]:
    for part in _SEPARATOR.split(text):
        problems = Problems(source)
        document = read_document(part, problems)
        problems.raise_if_any()
        if isinstance(document, dict) and document.get("kind") == "List":
            items = document.get("items")
            yield from items if isinstance(items, list) else ()
        elif isinstance(document, dict):
            yield document
        elif document is not None:
            raise SettingsError(source, "", described(document), "a manifest")


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
