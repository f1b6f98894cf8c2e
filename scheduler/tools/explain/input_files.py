"""Reads manifest files and snapshot files. Sizes are bounded, and every error is one line with the file's name."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from scheduler.engine.model.semantics import Semantics
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.explanation import API_VERSION
from scheduler.tools.explain.formats.manifest_documents import numbered_documents, sorted_documents
from scheduler.tools.explain.formats.manifests import Manifest
from scheduler.tools.explain.formats.snapshot_file import FORBIDDEN, KIND, LEASES
from scheduler.tools.explain.formats.terminal import print_unlisted
from scheduler.tools.explain.serving import Leases
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.simulation.new_claims import created
from scheduler.tools.explain.simulation.new_device_claims import TEMPLATE

STANDARD_INPUT: Final = "-"
#: A snapshot of 150,000 pods has about 150 MB.
_SNAPSHOT_LIMIT_BYTES: Final = 2 << 30
#: The snapshot in a file made by `bundle`, and the bytes that mark a tar file, with their place in it.
BUNDLED_SNAPSHOT: Final = "affinity-scheduler-bundle/snapshot.json"
_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_AT: Final = 257
#: All of kube-prometheus in one file has 5 MB.
_MANIFEST_LIMIT_BYTES: Final = 16 << 20
#: The kind of documents that the scheduler does not watch: controllers make claims from them.
_CLAIM_TEMPLATE: Final = ("resource.k8s.io/v1", TEMPLATE)
_GZIP_MAGIC: Final = b"\x1f\x8b"
#: Of the files in a folder that are read.
_SUFFIXES: Final = (".json", ".yaml", ".yml")


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


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
        watched_kinds = {(watched.api_version, watched.name): watched for watched in cluster.kinds}
        # Claims last: what becomes of them depends on the volumes and classes.
        for where, document in sorted(self.other_documents, key=_is_claim):
            named = str(document.get("apiVersion")), str(document["kind"])
            watched = watched_kinds.get(named)
            if watched is None and named != _CLAIM_TEMPLATE:
                continue
            placed = _in_namespace(document, self.namespace)
            try:
                if watched is None:
                    cluster.create_claim_template(placed)
                else:
                    cluster.create(watched, created(placed))
            except MalformedObjectError as error:
                raise SettingsError(where, "", f"a malformed {error}", f"a valid {named[1]}") from error


def _in_namespace(document: Mapping[str, object], namespace: str) -> Mapping[str, object]:
    """Return the document with the namespace if it names none; objects without namespaces are read without it."""
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("namespace"):
        return document
    return {**document, "metadata": {**metadata, "namespace": namespace}}


def parse_manifest_file(file: str, *, namespace: str, semantics: Semantics) -> ManifestFile:
    """
    Return the documents of a file ("-": standard input), or of the files in a folder that kubectl would read.

    At least one has to be of a kind that creates pods. Documents of other kinds are not checked.

    Raises SettingsError, or InvalidSettingsError with one line per problem.
    """
    source = "standard input" if file == STANDARD_INPUT else file
    documents = [found for one in _files(file) for found in _documents_of(one)]
    return ManifestFile(
        *sorted_documents(documents, source, namespace=namespace, semantics=semantics), namespace
    )


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


def _documents_of(file: str) -> list[tuple[str, object]]:
    """Return the file's documents, each with the place where it is."""
    source = "standard input" if file == STANDARD_INPUT else file
    text = _decode(_read(file, source, _MANIFEST_LIMIT_BYTES, "a file with a manifest"), source)
    return numbered_documents(text, source)


def read_snapshot(file: str, cluster: LoadedCluster) -> None:
    """
    Add the objects of a snapshot, or of the one in a support bundle, to `cluster`.

    The kinds that its author was not allowed to list are named on standard error. Raises SettingsError if it is no
    snapshot or of another version.
    """
    body = _unzipped(_read(file, file, _SNAPSHOT_LIMIT_BYTES, "a file made by the command snapshot"), file)
    if body.startswith(_TAR_MAGIC, _TAR_MAGIC_AT):
        body = _bundled(body, file)
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
            watched.kind: msgspec.json.decode(section, type=list[msgspec.Raw])
            for watched in cluster.kinds
            if (section := sections.get(watched.section))
        }
        if (section := sections.get(LEASES)) is None:
            cluster.leases = Leases(unknown={"": "the snapshot has no Leases"})
        else:
            cluster.leases = msgspec.json.decode(section, type=Leases)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(file, "", str(error), "lists of objects") from error
    forbidden = _forbidden(sections, file)
    for watched in cluster.kinds:
        if watched.kind in forbidden:
            print_unlisted(watched.kind, forbidden[watched.kind])
        for raw in by_kind.get(watched.kind, ()):
            cluster.apply(cluster.decode(watched, raw))
        if watched.kind in by_kind:
            cluster.apply(watched.on_served)


def _forbidden(sections: Mapping[str, msgspec.Raw], file: str) -> Mapping[str, str]:
    """Return by kind why the snapshot has no list of it. Raises SettingsError."""
    field = sections.get(FORBIDDEN)
    if field is None:
        return {}
    try:
        return msgspec.json.decode(field, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(file, FORBIDDEN, str(error), "an object of reasons by kind") from error


def _unzipped(body: bytes, source: str) -> bytes:
    """Return the body, unzipped if it is in gzip's format. Raises SettingsError."""
    if not body.startswith(_GZIP_MAGIC):
        return body
    try:
        with gzip.open(io.BytesIO(body)) as stream:
            return _bounded(stream, source, _SNAPSHOT_LIMIT_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise SettingsError(source, "", f"a damaged gzip file ({error})", f"JSON of a {KIND}") from error


def _bundled(body: bytes, source: str) -> bytes:
    """Return the snapshot in a tar file. Raises SettingsError."""
    import tarfile  # only here: it takes 9 ms

    expected = f"{BUNDLED_SNAPSHOT}, as the command bundle writes it"
    try:
        with tarfile.open(fileobj=io.BytesIO(body), mode="r:") as bundle:
            member = bundle.extractfile(BUNDLED_SNAPSHOT)
            if member is None:
                raise SettingsError(source, "", "no file of that name", expected)
            return _bounded(member, source, _SNAPSHOT_LIMIT_BYTES)
    except KeyError as error:
        found = "a support bundle without a snapshot (its MANIFEST.txt may say why)"
        raise SettingsError(source, "", found, expected) from error
    # A damaged header can lead to each of these.
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError, RecursionError) as error:
        raise SettingsError(source, "", f"a damaged tar file ({error})", expected) from error


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


def _bounded(stream: _Readable, source: str, limit_bytes: int) -> bytes:
    body = stream.read(limit_bytes + 1)
    if len(body) > limit_bytes:
        raise SettingsError(source, "", f"more than {limit_bytes} bytes", "fewer")
    return body


def _decode(body: bytes, source: str) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(source, "", f"no UTF-8 at byte {error.start}", "UTF-8 text") from error
