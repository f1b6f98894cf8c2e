"""Reads manifest files. Sizes are bounded, and every error is one line with the file's name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from scheduler.engine.model.semantics import Semantics
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.engine.syntax.match_label_keys import Json
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.json_values import mapping_or_empty
from scheduler.tools.explain.formats.manifest_documents import (
    CLAIM_TEMPLATE,
    PRIORITY_CLASS,
    ManifestFile,
    named,
    numbered_documents,
    sorted_documents,
    summary,
)
from scheduler.tools.explain.formats.manifests import is_controlled
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster

STANDARD_INPUT: Final = "-"
#: All of kube-prometheus in one file has 5 MB, a list of 300 pods as much.
_MANIFEST_LIMIT_BYTES: Final = 64 << 20
#: By which the limits of YAML are multiplied: files are one's own, and 1 MB takes 5 s.
_YAML_SCALE: Final = 64
#: Of the files in a folder that are read.
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_URLS: Final = ("http://", "https://")


def add_other_objects(file: ManifestFile, cluster: LoadedCluster) -> str:
    """
    Add other documents to the cluster if the scheduler watches their kind, as if they were applied first.

    Return a sentence on what was read and what was left out, '' if all is one document. Raises SettingsError for a
    malformed one.
    """
    watched_kinds = {(watched.api_version, watched.name): watched for watched in cluster.kinds}
    read: list[Json] = []
    left_out: list[Json] = []
    # Claims last: what becomes of them depends on the volumes and classes.
    for where, document in sorted(
        file.other_documents, key=lambda placed: placed[1].get("kind") == StorageKind.CLAIM
    ):
        watched = None if is_controlled(document) else watched_kinds.get(named(document))
        is_read = watched is not None or named(document) in (CLAIM_TEMPLATE, PRIORITY_CLASS)
        (read if is_read else left_out).append(document)
        try:
            if watched is not None:
                cluster.create(watched, document)
                _note_claims_of_groups(document, cluster)
            elif named(document) == CLAIM_TEMPLATE:
                cluster.create_claim_template(document)
        except MalformedObjectError as error:
            raise SettingsError(where, "", f"a malformed {error}", f"a valid {named(document)[1]}") from error
    return summary(file.manifests, read, left_out)


def _note_claims_of_groups(document: Json, cluster: LoadedCluster) -> None:
    """Note that claims which a PodGroup shares among its members are made for each member."""
    spec = mapping_or_empty(document.get("spec"))
    if named(document)[1] == "PodGroup" and spec.get("resourceClaims"):
        text = "spec.resourceClaims of a PodGroup has no effect: each pod has claims of its own"
        cluster.assumptions[f"{text}, as without the feature gate DRAWorkloadResourceClaims"] = None


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
    return sorted_documents(documents, source, namespace=namespace, semantics=semantics)


def _files(file: str) -> list[str]:
    """Return the file; for a folder, the files in it whose names end as kubectl expects, in order."""
    folder = Path(file)
    try:
        if file == STANDARD_INPUT or file.startswith(_URLS) or not folder.is_dir():
            return [file]
        found = sorted(str(path) for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())
    except OSError as error:
        raise SettingsError(
            file, "", error.strerror or str(error), "a file or a folder of manifests"
        ) from error
    if not found:
        raise SettingsError(
            file, "", "a folder without manifests", f"files that end with {', '.join(_SUFFIXES)}"
        )
    return found


def _documents_of(file: str, download: Callable[[str, int], bytes]) -> list[tuple[str, object]]:
    """Return the documents of a file or of a URL, each with the place where it is."""
    source, expected = "standard input" if file == STANDARD_INPUT else file, "a file with a manifest"
    try:
        if file.startswith(_URLS):
            body = download(file, _MANIFEST_LIMIT_BYTES)
        elif file == STANDARD_INPUT:
            body = sys.stdin.buffer.read(_MANIFEST_LIMIT_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                body = stream.read(_MANIFEST_LIMIT_BYTES + 1)
        text = body.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise SettingsError(source, "", "no such file", expected) from error
    except UnicodeDecodeError as error:
        raise SettingsError(source, "", f"no UTF-8 at byte {error.start}", "UTF-8 text") from error
    except (OSError, ValueError) as error:
        raise SettingsError(source, "", getattr(error, "strerror", None) or str(error), expected) from error
    if len(body) > _MANIFEST_LIMIT_BYTES:
        raise SettingsError(source, "", f"more than {_MANIFEST_LIMIT_BYTES} bytes", "fewer")
    return numbered_documents(text, source, scale=_YAML_SCALE)
