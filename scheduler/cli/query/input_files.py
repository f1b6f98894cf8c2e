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
from scheduler.explain.snapshot_file import BUDGET, KIND, SECTIONS
from scheduler.model.volumes import StorageKind
from scheduler.model.wire import MalformedObjectError
from scheduler.settings.documents import read_document
from scheduler.settings.problems import Problems, described

STANDARD_INPUT: Final = "-"
#: A snapshot of 150,000 pods has about 150 MB.
_SNAPSHOT_LIMIT_BYTES: Final = 2 << 30
_MANIFEST_LIMIT_BYTES: Final = 4 << 20
_MAX_DOCUMENTS: Final = 1_000
#: Of the files in a folder that are read.
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_SEPARATOR: Final = re.compile(r"^---[ \t]*(?:#.*)?\r?$", re.MULTILINE)
#: In block style, as every tool writes it: a line of the document's outermost level.
_DEFINITION: Final = re.compile(r"^kind: *CustomResourceDefinition *\r?$", re.MULTILINE)


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The documents of a manifest file: the ones that create pods, and all others with the place where they are."""

    manifests: list[Manifest]
    other_documents: list[tuple[str, Mapping[str, object]]]
    #: The namespace of objects that name none.
    namespace: str

    def add_other_objects(self, cluster: LoadedCluster) -> None:
        """
        Add other documents to the cluster if the scheduler watches their kind, as if they were applied first.

        Raises SettingsError for a malformed one.
        """
        watched_kinds = {(watched.resource.api_version, watched.kind): watched for watched in cluster.kinds}
        # Claims last: what becomes of them depends on the volumes and classes.
        for where, document in sorted(self.other_documents, key=_is_claim):
            watched = watched_kinds.get((str(document.get("apiVersion")), str(document["kind"])))
            if watched is None:
                continue
            try:
                cluster.create(watched, created(_in_namespace(document, self.namespace)))
            except MalformedObjectError as error:
                raise SettingsError(where, "", f"a malformed {error}", f"a valid {watched.kind}") from error


def _in_namespace(document: Mapping[str, object], namespace: str) -> Mapping[str, object]:
    """Return the document with the namespace if it names none; objects without namespaces are read without it."""
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("namespace"):
        return document
    return {**document, "metadata": {**metadata, "namespace": namespace}}


def parse_manifest_file(file: str, *, namespace: str, gates: Mapping[str, bool]) -> ManifestFile:
    """
    Return the documents of a file ("-": standard input), or of the files in a folder that kubectl would read.

    At least one has to be of a kind that creates pods. Documents of other kinds are not checked.

    Raises SettingsError, or InvalidSettingsError with one line per problem.
    """
    source = "standard input" if file == STANDARD_INPUT else file
    documents = [found for one in _files(file) for found in _numbered_documents(one)]
    if not documents:
        raise SettingsError(source, "", "nothing", "at least one manifest")
    if len(documents) > _MAX_DOCUMENTS:
        raise SettingsError(source, "", f"{len(documents)} documents", f"at most {_MAX_DOCUMENTS}")
    manifests: list[Manifest] = []
    other_documents: list[tuple[str, Mapping[str, object]]] = []
    for where, document in documents:
        if _creates_no_pods(document):
            other_documents.append((where, document))
            continue
        try:
            manifests.append(parse_manifest(document, namespace=namespace, gates=gates))
        except ManifestError as error:
            raise SettingsError(where, error.field, error.found, error.expected) from error
    if not manifests:
        kinds = ", ".join(dict.fromkeys(str(document["kind"])[:60] for _, document in other_documents[:5]))
        raise SettingsError(source, "kind", kinds, f"one of {', '.join(KINDS)}")
    _check_unique(manifests, source)
    return ManifestFile(manifests, other_documents, namespace)


def _is_claim(numbered: tuple[str, Mapping[str, object]]) -> bool:
    return numbered[1].get("kind") == StorageKind.CLAIM


def _files(file: str) -> list[str]:
    """Return the file; for a folder, the files in it whose names end as kubectl expects, in order."""
    folder = Path(file)
    if file == STANDARD_INPUT or not folder.is_dir():
        return [file]
    found = sorted(str(path) for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())
    if not found:
        raise SettingsError(
            file, "", "a folder without manifests", f"files that end with {', '.join(_SUFFIXES)}"
        )
    return found


def _numbered_documents(file: str) -> list[tuple[str, object]]:
    """Return the file's documents, each with the place where it is."""
    source = "standard input" if file == STANDARD_INPUT else file
    text = _decode(_read(file, source, _MANIFEST_LIMIT_BYTES, "a file with a manifest"), source)
    documents = list(_documents(text, source))
    if len(documents) == 1:
        return [(source, documents[0])]
    return [(f"{source}: document {number}", document) for number, document in enumerate(documents, 1)]


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
        if _DEFINITION.search(part):
            # It creates no pods, and parsing one takes seconds.
            yield {"kind": "CustomResourceDefinition"}
            continue
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
        budgets = msgspec.json.decode(sections.get(SECTIONS[BUDGET]) or b"[]", type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(file, "", str(error), "lists of objects") from error
    for watched in cluster.kinds:
        for raw in by_kind[watched.kind]:
            cluster.apply(cluster.decode(watched, raw))
    for raw in budgets:
        cluster.add_budget(raw)


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
