"""Reads manifest files. Sizes are bounded, and every error is one line with the file's name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from scheduler.engine.model.match_label_keys import Json
from scheduler.engine.model.semantics import Semantics
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.manifest_documents import (
    CLAIM_TEMPLATE,
    PRIORITY_CLASS,
    Placed,
    named,
    numbered_documents,
    sorted_documents,
    summary,
)
from scheduler.tools.explain.formats.manifests import Manifest, is_controlled
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.simulation.new_claims import created

STANDARD_INPUT: Final = "-"
#: All of kube-prometheus in one file has 5 MB, a list of 300 pods as much.
_MANIFEST_LIMIT_BYTES: Final = 64 << 20
#: By which the limits of YAML are multiplied: files are one's own, and 1 MB takes 5 s.
_YAML_SCALE: Final = 64
#: Of the files in a folder that are read.
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_URLS: Final = ("http://", "https://")


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The documents of manifests: the ones that create pods, and all others with the place where they are."""

    manifests: list[Manifest]
    other_documents: list[Placed]
    #: The namespace of objects that name none.
    namespace: str

    @classmethod
    def of(
        cls, documents: Sequence[tuple[str, object]], source: str, *, namespace: str, semantics: Semantics
    ) -> ManifestFile:
        """Return the documents, which `source` names together, sorted and checked. Raises as `sorted_documents`."""
        return cls(*sorted_documents(documents, source, namespace=namespace, semantics=semantics), namespace)

    def add_other_objects(self, cluster: LoadedCluster) -> str:
        """
        Add other documents to the cluster if the scheduler watches their kind, as if they were applied first.

        Return a sentence on what was read and what was left out, '' if all is one document. Raises SettingsError for a
        malformed one.
        """
        watched_kinds = {(watched.api_version, watched.name): watched for watched in cluster.kinds}
        read: list[Json] = []
        left_out: list[Json] = []
        # Claims last: what becomes of them depends on the volumes and classes.
        for where, document in sorted(self.other_documents, key=_is_claim):
            watched = None if is_controlled(document) else watched_kinds.get(named(document))
            is_read = watched is not None or named(document) in (CLAIM_TEMPLATE, PRIORITY_CLASS)
            (read if is_read else left_out).append(document)
            placed = _in_namespace(document, self.namespace)
            try:
                if watched is not None:
                    cluster.create(watched, created(placed))
                    _note_claims_of_groups(placed, cluster)
                elif named(document) == CLAIM_TEMPLATE:
                    cluster.create_claim_template(placed)
            except MalformedObjectError as error:
                raise SettingsError(
                    where, "", f"a malformed {error}", f"a valid {named(document)[1]}"
                ) from error
        return summary(self.manifests, read, left_out)


def _note_claims_of_groups(document: Json, cluster: LoadedCluster) -> None:
    """Note that claims which a PodGroup shares among its members are made for each member."""
    spec = document.get("spec") if named(document)[1] == "PodGroup" else None
    if isinstance(spec, Mapping) and spec.get("resourceClaims"):
        text = "spec.resourceClaims of a PodGroup has no effect: each pod has claims of its own"
        cluster.assumptions[f"{text}, as without the feature gate DRAWorkloadResourceClaims"] = None


def _in_namespace(document: Mapping[str, object], namespace: str) -> Mapping[str, object]:
    """Return the document with the namespace if it names none; objects without namespaces are read without it."""
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("namespace"):
        return document
    return {**document, "metadata": {**metadata, "namespace": namespace}}


def parse_manifest_files(
    files: Sequence[str], download: Callable[[str, int], bytes], *, namespace: str, semantics: Semantics
) -> ManifestFile:
    """
    Return the documents of files ("-": standard input), of the files in folders that kubectl would read, and of URLs.

    At least one has to be of a kind that creates pods. `download` returns what is at a URL, at most so many bytes.

    Raises SettingsError, or InvalidSettingsError with one line per problem.
    """
    documents = [found for file in files for one in _files(file) for found in _documents_of(one, download)]
    source = ", ".join("standard input" if file == STANDARD_INPUT else file for file in files)
    return ManifestFile.of(documents, source, namespace=namespace, semantics=semantics)


def _is_claim(numbered: Placed) -> bool:
    return numbered[1].get("kind") == StorageKind.CLAIM


def _files(file: str) -> list[str]:
    """Return the file; for a folder, the files in it whose names end as kubectl expects, in order."""
    folder = Path(file)
    if file == STANDARD_INPUT or file.startswith(_URLS) or not folder.is_dir():
        return [file]
    found = sorted(str(path) for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())
    if not found:
        raise SettingsError(
            file, "", "a folder without manifests", f"files that end with {', '.join(_SUFFIXES)}"
        )
    return found


def _documents_of(file: str, download: Callable[[str, int], bytes]) -> list[tuple[str, object]]:
    """Return the documents of a file or of a URL, each with the place where it is."""
    source = "standard input" if file == STANDARD_INPUT else file
    if file.startswith(_URLS):
        body = download(file, _MANIFEST_LIMIT_BYTES)
    else:
        body = _read(file, source, _MANIFEST_LIMIT_BYTES, "a file with a manifest")
    return numbered_documents(_decode(body, source), source, scale=_YAML_SCALE)


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
