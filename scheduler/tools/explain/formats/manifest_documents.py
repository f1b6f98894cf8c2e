"""Reads the documents of a manifest: those that create pods, and all others. Every error is one line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeGuard

from scheduler.daemon.settings.documents import read_document
from scheduler.daemon.settings.problems import Problems, described, printable
from scheduler.engine.model.semantics import Semantics
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.manifests import KINDS, Manifest, ManifestError, parse_manifest

_MAX_DOCUMENTS: Final = 1_000
_SEPARATOR: Final = re.compile(r"^---[ \t]*(?:#.*)?\r?$", re.MULTILINE)
#: Kinds whose objects create no pods and are the longest: parsing one takes seconds, and dashboards exceed its limit.
#: In block style, as every tool writes it: a line of the document's outermost level.
_LONG_KIND: Final = re.compile(r"^kind: *(CustomResourceDefinition|ConfigMap(?:List)?) *\r?$", re.MULTILINE)


def numbered_documents(text: str, source: str) -> list[tuple[str, object]]:
    """Return the text's documents, each with the place where it is; `source` names the text. Raises SettingsError."""
    documents = list(_documents(text, source))
    if len(documents) == 1:
        return [(source, documents[0])]
    return [(f"{source}: document {number}", document) for number, document in enumerate(documents, 1)]


def sorted_documents(
    documents: Sequence[tuple[str, object]], source: str, *, namespace: str, semantics: Semantics
) -> tuple[list[Manifest], list[tuple[str, Mapping[str, object]]]]:
    """
    Return the documents that create pods, at least one, and all others with their places.

    Raises SettingsError, or InvalidSettingsError with one line per problem.
    """
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
            manifests.append(parse_manifest(document, namespace=namespace, semantics=semantics))
        except ManifestError as error:
            raise SettingsError(where, error.field, error.found, error.expected) from error
    if not manifests:
        kinds = ", ".join(dict.fromkeys(str(document["kind"])[:60] for _, document in other_documents[:5]))
        raise SettingsError(source, "kind", printable(kinds), f"one of {', '.join(KINDS)}")
    _check_unique(manifests, source)
    return manifests, other_documents


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
        if found := _LONG_KIND.search(part):
            yield {"kind": found[1]}
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
