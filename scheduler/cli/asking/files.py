"""Manifests and snapshots: bounded, and every mistake one line with the file's name."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeGuard

import msgspec

from scheduler.cli.asking.world import World
from scheduler.errors import SettingsError
from scheduler.explain.explanation import API_VERSION
from scheduler.explain.manifests import KINDS, Manifest, ManifestError, parse_manifest
from scheduler.explain.snapshot_file import KIND, SECTIONS
from scheduler.settings.documents import read_document
from scheduler.settings.problems import Problems, described

STANDARD_INPUT: Final = "-"
#: A snapshot of 150,000 pods has about 150 MB.
_SNAPSHOT_LIMIT_BYTES: Final = 2 << 30
_MANIFEST_LIMIT_BYTES: Final = 4 << 20
_MOST_DOCUMENTS: Final = 100
_SEPARATOR: Final = re.compile(r"^---[ \t]*(?:#.*)?\r?$", re.MULTILINE)


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Manifests:
    """What the documents of a file would create: pods, and whatever else, as an application has it in its file."""

    plans: list[Manifest]
    beside: list[Mapping[str, object]]

    def add_beside(self, world: World) -> None:
        """Of what else there is, the kinds that the scheduler watches are in the world, as if applied first."""
        for document in self.beside:
            for watched in world.kinds:
                if watched.kind == document.get("kind"):
                    world.see(world.decoded(watched, msgspec.Raw(msgspec.json.encode(document))))


def read_manifests(file: str, *, namespace: str, gates: Mapping[str, bool]) -> Manifests:
    """
    What the documents of the file ("-": standard input) would create; at least one of them makes pods.

    Documents of a kind that makes no pods, or makes them in a way of its own, are not looked into.

    Raises SettingsError, or InvalidSettingsError with a line for each problem.
    """
    source = "standard input" if file == STANDARD_INPUT else file
    text = _decoded(_read(file, source, _MANIFEST_LIMIT_BYTES, "a file with a manifest"), source)
    documents = list(_documents(text, source))
    if not documents:
        raise SettingsError(source, "", "nothing", "at least one manifest")
    if len(documents) > _MOST_DOCUMENTS:
        raise SettingsError(source, "", f"{len(documents)} documents", f"at most {_MOST_DOCUMENTS}")
    plans: list[Manifest] = []
    beside: list[Mapping[str, object]] = []
    for number, document in enumerate(documents, 1):
        if _makes_no_pods(document):
            beside.append(document)
            continue
        where = source if len(documents) == 1 else f"{source}: document {number}"
        try:
            plans.append(parse_manifest(document, namespace=namespace, gates=gates))
        except ManifestError as error:
            raise SettingsError(where, error.field, error.found, error.expected) from error
    if not plans:
        kinds = ", ".join(dict.fromkeys(str(document["kind"])[:60] for document in beside[:5]))
        raise SettingsError(source, "kind", kinds, f"one of {', '.join(KINDS)}")
    _no_object_twice(plans, source)
    return Manifests(plans, beside)


def _makes_no_pods(document: object) -> TypeGuard[Mapping[str, object]]:
    kind = document.get("kind") if isinstance(document, Mapping) else None
    return isinstance(kind, str) and bool(kind) and kind not in KINDS


def _no_object_twice(plans: Sequence[Manifest], source: str) -> None:
    named = Counter((plan.kind, plan.namespace, plan.name) for plan in plans)
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


def read_snapshot(file: str, world: World) -> None:
    """The cluster of a snapshot is in `world`. Raises SettingsError for a file that is none, or of another version."""
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
            for watched in world.kinds
        }
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(file, "", str(error), "lists of objects") from error
    for watched in world.kinds:
        for raw in by_kind[watched.kind]:
            world.see(world.decoded(watched, raw))


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


def _decoded(body: bytes, source: str) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(source, "", f"no UTF-8 at byte {error.start}", "UTF-8 text") from error
