"""Reads the documents of a manifest: those that create pods, and all others. Every error is one line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from scheduler.daemon.settings.documents import MAX_CHARS, MAX_VALUES, read_document
from scheduler.daemon.settings.problems import MAX_LINES, Problems, described, printable
from scheduler.engine.framework.kinds import KINDS as WATCHED_KINDS
from scheduler.engine.model.nesting import shallow
from scheduler.engine.model.semantics import Semantics
from scheduler.engine.syntax.match_label_keys import Json
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.json_values import ManifestError
from scheduler.tools.explain.formats.known_fields import unknown_fields
from scheduler.tools.explain.formats.manifests import KINDS, Manifest, is_controlled, parse_manifests

#: Kinds that commands read beside those that create pods and those that are watched.
CLAIM_TEMPLATE: Final = ("resource.k8s.io/v1", "ResourceClaimTemplate")
PRIORITY_CLASS: Final = ("scheduling.k8s.io/v1", "PriorityClass")
_READ: Final = frozenset(
    {(row.api_version, row.name) for row in WATCHED_KINDS.values()} | {CLAIM_TEMPLATE, PRIORITY_CLASS}
)
#: Earlier versions of resource.k8s.io, and fields of a request that v1 keeps beside those of the devices it is for.
_EARLIER: Final = ("resource.k8s.io/v1alpha3", "resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2")
_OF_REQUEST: Final = ("name", "firstAvailable", "exactly")
_MAX_DOCUMENTS: Final = 10_000
#: Characters of a kind in messages.
_MAX_SHOWN: Final = 120
_SEPARATOR: Final = re.compile(r"^---[ \t]*(?:#.*)?\r?$", re.MULTILINE)
#: Kinds whose objects create no pods and are the longest: parsing one takes seconds, and dashboards exceed its limit.
#: In block style, as every tool writes it: a line of the document's outermost level.
_LONG_KIND: Final = re.compile(r"^kind: *(CustomResourceDefinition|ConfigMap(?:List)?) *\r?$", re.MULTILINE)
#: Digits of whole numbers, as in YAML.
_INTEGER_DIGITS: Final = 19

#: A document, and the place where it is.
Placed = tuple[str, Json]


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The documents of manifests: the ones that create pods, and all others with the place where they are."""

    manifests: list[Manifest]
    other_documents: list[Placed]


def numbered_documents(text: str, source: str, *, scale: int = 1) -> list[tuple[str, object]]:
    """
    Return the text's documents and the items of its lists, each with the place where it is; `source` names the text.

    `scale`: by which the limits of YAML are multiplied; JSON has none. Raises SettingsError.
    """
    parts = [(index, part) for index, part in enumerate(_SEPARATOR.split(text), 1) if part.strip()]
    return [
        found
        for index, part in parts
        for found in _documents(part, source if len(parts) == 1 else f"{source}: document {index}", scale)
    ]


def sorted_documents(
    documents: Sequence[tuple[str, object]], source: str, *, namespace: str, semantics: Semantics
) -> ManifestFile:
    """
    Return the documents, which `source` names together, of which at least one has to create pods.

    Pods that controllers made are among the others if there is anything else that creates pods. Raises SettingsError,
    or InvalidSettingsError with one line per problem: an unknown field of a kind that is read is one.
    """
    if not documents:
        raise SettingsError(source, "", "nothing", "at least one manifest")
    if len(documents) > _MAX_DOCUMENTS:
        raise SettingsError(source, "", f"{len(documents)} documents", f"at most {_MAX_DOCUMENTS}")
    creating: list[tuple[str, object]] = []
    others: list[Placed] = []
    controlled: list[Placed] = []
    problems = Problems(source)
    for where, document in documents:
        if not isinstance(document, Mapping):
            creating.append((where, document))
            continue
        if is_creating := _creates_pods(document):
            (controlled if is_controlled(document) else creating).append((where, document))
        else:
            others.append((where, _in_namespace(_converted(document), namespace)))
        is_checked = is_creating or named(others[-1][1]) in _READ
        if is_checked and len(problems.lines) < MAX_LINES:
            problems.include(_unknown_fields(where, document))
    problems.raise_if_any()
    if not creating and not controlled:
        kinds = ", ".join(dict.fromkeys(named(document)[1][:60] for _, document in others[:5]))
        raise SettingsError(source, "kind", printable(kinds), f"one of {', '.join(KINDS)}")
    others += controlled if creating else ()
    by_document: list[list[Manifest]] = []
    for where, document in creating or controlled:
        try:
            by_document.append(parse_manifests(document, namespace=namespace, semantics=semantics))
        except ManifestError as error:
            raise SettingsError(where, error.field, error.found, error.expected) from error
    _check_unique(by_document, source)
    return ManifestFile([manifest for made in by_document for manifest in made], others)


def _unknown_fields(where: str, document: Json) -> tuple[str, ...]:
    found = Problems(where)
    for path, text in islice(unknown_fields(document), MAX_LINES):
        found.add(path, text)
    return found.lines


def named(document: Json) -> tuple[str, str]:
    """Return apiVersion and kind as the document says them."""
    return str(document.get("apiVersion")), str(document.get("kind"))


def summary(manifests: Sequence[Manifest], read: Sequence[Json], left_out: Sequence[Json]) -> str:
    """Return a sentence on which kinds were read and which were left out; '' for one document, which was read."""
    made_from = dict.fromkeys(manifest.made_from for manifest in manifests)
    kinds = [*(kind for kind, _, _ in made_from), *(named(document)[1] for document in read)]
    if len(kinds) == 1 and not left_out:
        return ""
    text = f"read {_listed(kinds)}"
    return f"{text}; left out {_listed(map(_why_left_out, left_out))}" if left_out else text


def _why_left_out(document: Json) -> str:
    """Return the kind, and why it was left out if other objects of its name are read."""
    version, kind = named(document)
    if is_controlled(document):
        return f"{kind} of a controller"
    if (version, kind) in _READ:
        return f"{kind}, which this configuration does not read"
    read = sorted(
        each for each, name in (*_READ, *((of_kind, name) for name, of_kind in KINDS.items())) if name == kind
    )
    if not read:
        return kind
    group = version.rpartition("/")[0]
    same = next((each for each in read if each.rpartition("/")[0] == group), None)
    return f"{kind} of {version}" if same is None else f"{kind} of {version} instead of {same}"


def _listed(kinds: Iterable[str]) -> str:
    counts = Counter(kind[:_MAX_SHOWN] for kind in kinds).most_common()
    return printable(", ".join(f"{kind} ({n})" if n > 1 else kind for kind, n in counts))


def _creates_pods(document: Json) -> bool:
    """Return whether the document has a kind that creates pods, in any version of its group; True without a kind."""
    kind, group = document.get("kind"), str(document.get("apiVersion")).rpartition("/")[0]
    if not isinstance(kind, str) or not kind:
        return True
    return kind in KINDS and (group == KINDS[kind].rpartition("/")[0] or "apiVersion" not in document)


def _check_unique(by_document: Sequence[Sequence[Manifest]], source: str) -> None:
    for (kind, namespace, name), count in Counter(made[0].made_from for made in by_document if made).items():
        if count > 1:
            raise SettingsError(source, f"{kind} {namespace}/{name}", f"{count} documents", "one")


def _documents(part: str, where: str, scale: int) -> Iterator[tuple[str, object]]:
    if found := _LONG_KIND.search(part):
        yield where, {"kind": found[1]}
        return
    document = _json(part)
    if document is None:
        problems = Problems(where)
        document = read_document(part, problems, max_chars=scale * MAX_CHARS, max_values=scale * MAX_VALUES)
        problems.raise_if_any()
    if isinstance(document, dict):
        yield from _items(document, where)
    elif document is not None:
        raise SettingsError(where, "", described(document), "a manifest")


def _items(document: dict[str, object], where: str) -> Iterator[tuple[str, object]]:
    """Yield the document, or of a list its items: of `kind: List`, and of one kind, whose items need not name it."""
    kind, items = document.get("kind"), document.get("items")
    if (
        not isinstance(kind, str)
        or not kind.endswith("List")
        or not (isinstance(items, list) or kind == "List")
    ):
        yield where, document
        return
    named = {} if kind == "List" else {"apiVersion": document.get("apiVersion"), "kind": kind[: -len("List")]}
    for index, item in enumerate(items if isinstance(items, list) else ()):
        at = f"{where}: items[{index}]"
        if isinstance(item, dict):
            yield from _items({**named, **item}, at)
        else:
            yield at, item


def _json(text: str) -> object | None:
    """
    Return the document if it is plain JSON, of which a megabyte takes 10 ms; else None, for the reader of YAML.

    That says what is wrong, and has to join the halves of escaped characters.
    """
    if not text.lstrip().startswith("{") or "\\u" in text:
        return None
    body = text.encode()
    if shallow(body) != body:
        return None
    try:
        document: object = json.loads(
            text, object_pairs_hook=_unique, parse_int=_number, parse_constant=_number
        )
    except (ValueError, RecursionError):
        return None
    return document


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the fields as an object. Raises ValueError for a repeated one."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a repeated field")
    return fields


def _number(text: str) -> int | float:
    """Return a whole number as YAML reads it. Raises ValueError for what is none, such as NaN."""
    return int(text) if len(text.lstrip("-")) <= _INTEGER_DIGITS else float(text)


def _in_namespace(document: Json, namespace: str) -> Json:
    """Return the document with the namespace if it names none; objects without namespaces are read without it."""
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("namespace"):
        return document
    return {**document, "metadata": {**metadata, "namespace": namespace}}


def _converted(document: Json) -> Json:
    """
    Return a document of an earlier version of resource.k8s.io in v1, any other as it is.

    Source: pkg/apis/resource/v1beta1/conversion.go, v1alpha3 and v1beta2 (kubernetes 1.36).
    """
    if document.get("apiVersion") not in _EARLIER:
        return document
    document = {**document, "apiVersion": "resource.k8s.io/v1"}
    match document.get("kind"):
        case "ResourceClaim":
            return _changed(document, ("spec", "devices", "requests"), _request)
        case "ResourceClaimTemplate":
            return _changed(document, ("spec", "spec", "devices", "requests"), _request)
        case "ResourceSlice":
            return _changed(document, ("spec", "devices"), _device)
    return document


def _changed(value: Json, path: tuple[str, ...], change: Callable[[Json], Json]) -> Json:
    """Return the object with each object of the list at the path changed; what is no list is left as it is."""
    field, *rest = path
    inner = value.get(field)
    if rest and isinstance(inner, Mapping):
        return {**value, field: _changed(inner, tuple(rest), change)}
    if not rest and isinstance(inner, list):
        return {**value, field: [change(each) if isinstance(each, Mapping) else each for each in inner]}
    return value


def _request(request: Json) -> Json:
    """Return a request whose fields for devices, before v1beta2 its own, are those of `exactly`."""
    devices = {name: value for name, value in request.items() if name not in _OF_REQUEST}
    rest = {name: value for name, value in request.items() if name in _OF_REQUEST}
    return {**rest, "exactly": devices} if devices else rest


def _device(device: Json) -> Json:
    """Return a device without `basic`, whose fields are now its own."""
    basic = device.get("basic")
    rest = {name: value for name, value in device.items() if name != "basic"}
    return {**rest, **basic} if isinstance(basic, Mapping) else device
