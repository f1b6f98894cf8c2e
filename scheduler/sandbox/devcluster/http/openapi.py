"""
The part of OpenAPI v3 that kubectl needs, built from `KINDS`: a few kilobytes instead of megabytes.

What kubectl 1.27 to 1.36 reads from it:

1. `create` and `apply` look for the query parameter `fieldValidation` on the PATCH operation of the kind. If it is
   there, kubectl leaves validation to the server; otherwise it wants the whole OpenAPI v2 schema.
2. `apply` computes three-way merges by OpenAPI v3 only if that PATCH accepts a strategic merge patch. Here it does
   not, and kubectl uses the merge keys compiled into it for every built-in kind.
3. `explain` shows component schemas.

The OpenAPI v2 document is empty. kubectl asks for it before it applies a List, and stops if it is missing; it reads
protobuf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.schemas import PLAIN, STRUCTURES, Field
from scheduler.sandbox.devcluster.storage.history import as_events_v1
from scheduler.sandbox.devcluster.versions import DEFAULT_MINOR, git_version

#: The body of /openapi/v2: a document with nothing but the version of the format.
V2_DOCUMENT: Final = b"\x0a\x032.0"
V2_CONTENT_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

#: Of the schemas, which are those of every version that is served.
_VERSION: Final = git_version(DEFAULT_MINOR)
_OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
#: Type of a field -> its type in OpenAPI; every other one is an object.
_TYPES: Final = {**dict.fromkeys("styqo", "string"), "i": "integer", "b": "boolean"}


def index(served: Sequence[Kind]) -> JsonObject:
    """Return the body of /openapi/v3: the address of each group's and version's document."""
    paths = sorted({kind.path.removeprefix("/") for kind in served})
    version = hashlib.sha256(repr((_VERSION, served)).encode()).hexdigest()[:32].upper()
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={version}"} for path in paths}}


def document(path: str, served: Sequence[Kind]) -> JsonObject | None:
    """Return the body of /openapi/v3/<path>, such as `api/v1` or `apis/apps/v1`; None if nothing is there."""
    kinds = [kind for kind in served if kind.path == f"/{path}"]
    if not kinds:
        return None
    schemas = {_schema_name(kind): _schema(kind) for kind in kinds}
    metadata = {"type": "object", "properties": _properties(STRUCTURES["ObjectMeta"])}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": _VERSION},
        "paths": {_object_path(kind): {"patch": _patch_operation(kind)} for kind in kinds},
        "components": {"schemas": {_OBJECT_META: metadata, **schemas}},
    }


def _schema_name(kind: Kind) -> str:
    return f"io.k8s.api.{kind.group.split('.')[0] or 'core'}.{kind.version}.{kind.kind}"


def _object_path(kind: Kind) -> str:
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"{kind.path}{scope}/{kind.plural}/{{name}}"


def _gvk(kind: Kind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _patch_operation(kind: Kind) -> JsonObject:
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    return {
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names],
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _gvk(kind),
    }


def _schema(kind: Kind) -> JsonObject:
    properties = _properties(STRUCTURES.get(kind.kind, PLAIN))
    if kind.group == "events.k8s.io":
        properties = as_events_v1(properties)
    own = {key: {"type": "string"} for key in ("apiVersion", "kind")}
    metadata = {"allOf": [{"$ref": f"#/components/schemas/{_OBJECT_META}"}], "default": {}}
    return {
        "type": "object",
        "description": f"{kind.kind}, as the embedded cluster serves it.",
        "properties": {**properties, **own, "metadata": metadata},
        "x-kubernetes-group-version-kind": [_gvk(kind)],
    }


def _properties(fields: Iterable[Field]) -> JsonObject:
    properties: JsonObject = {}
    for field in fields:
        of_type = _TYPES.get(field.type, "object")
        schema: JsonObject = {"type": of_type}
        if field.repeats:
            schema = {"type": "array", "items": schema}
        elif field.is_map:
            schema = {"type": "object", "additionalProperties": {"type": "string"}}
        properties[field.name] = {**schema, "description": f"The {field.name} of the object."}
    return properties
