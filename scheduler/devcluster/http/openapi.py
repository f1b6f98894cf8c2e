"""
As much OpenAPI v3 as kubectl needs, made from `KINDS`: a few kilobytes in place of megabytes.

What kubectl 1.27 to 1.36 reads from it:

1. `create` and `apply` look for the query parameter `fieldValidation` on the PATCH operation of the kind. If it is
   there, kubectl leaves validation to the server; otherwise it wants the whole OpenAPI v2 schema.
2. `apply` computes three-way merges by OpenAPI v3 only if that PATCH accepts a strategic merge patch. Here it does
   not, and kubectl uses the merge keys compiled into it for every built-in kind.
3. `explain` shows component schemas.

The OpenAPI v2 document is empty. kubectl up to 1.28 asks for it and stops if it is missing; it reads protobuf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from scheduler.devcluster.http.discovery import GIT_VERSION
from scheduler.devcluster.kinds import KINDS, JsonObject, Kind

#: The body of /openapi/v2: a document with nothing but the version of the format.
V2_DOCUMENT: Final = b"\x0a\x032.0"
V2_CONTENT_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_STRING: Final[JsonObject] = {"type": "string"}
_LABELS: Final[JsonObject] = {"type": "object", "additionalProperties": _STRING}
_OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_BODIES: Final[Mapping[str, Mapping[str, str]]] = {
    "Event": {
        "note": "string",
        "reason": "string",
        "regarding": "object",
        "reportingController": "string",
        "series": "object",
        "type": "string",
    },
    "ConfigMap": {"binaryData": "object", "data": "object", "immutable": "boolean"},
    "PriorityClass": {
        "description": "string",
        "globalDefault": "boolean",
        "preemptionPolicy": "string",
        "value": "integer",
    },
    "Secret": {"data": "object", "immutable": "boolean", "stringData": "object", "type": "string"},
    "MutatingWebhookConfiguration": {"webhooks": "array"},
    "ValidatingWebhookConfiguration": {"webhooks": "array"},
    "Role": {"rules": "array"},
    "ClusterRole": {"aggregationRule": "object", "rules": "array"},
    "RoleBinding": {"roleRef": "object", "subjects": "array"},
    "ClusterRoleBinding": {"roleRef": "object", "subjects": "array"},
    "ServiceAccount": {"automountServiceAccountToken": "boolean"},
    "Lease": {"spec": "object"},
    "Binding": {"target": "object"},
}
_SPEC_AND_STATUS: Final[Mapping[str, str]] = {"spec": "object", "status": "object"}
_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "spec": "What is wanted.",
    "status": "What is, as last observed. Read-only.",
}
_QUERY: Final[Mapping[str, str]] = {
    "dryRun": "All: nothing is stored, the answer is what would have been.",
    "fieldManager": "Who makes the change.",
    "fieldValidation": "What to do with unknown and duplicate fields: Ignore, Warn or Strict.",
    "force": "Take fields over from other managers; for apply requests only.",
}


def index(kinds: Sequence[Kind] = KINDS) -> JsonObject:
    """Return the body of /openapi/v3: the address of each group's and version's document."""
    paths = sorted({kind.path.removeprefix("/") for kind in kinds})
    mark = hashlib.sha256(repr((GIT_VERSION, kinds)).encode()).hexdigest()[:32].upper()
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={mark}"} for path in paths}}


def document(path: str, kinds: Sequence[Kind] = KINDS) -> JsonObject | None:
    """Return the body of /openapi/v3/<path>, such as `api/v1` or `apis/apps/v1`; None if nothing is there."""
    members = [kind for kind in kinds if kind.path == f"/{path}"]
    if not members:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": GIT_VERSION},
        "paths": {template: item for kind in members for template, item in _paths(kind).items()},
        "components": {
            "schemas": {
                _OBJECT_META: _object_meta(),
                **{_schema_name(kind): _schema(kind) for kind in members},
            }
        },
    }


def _schema_name(kind: Kind) -> str:
    return f"io.k8s.api.{kind.group.split('.')[0] or 'core'}.{kind.version}.{kind.kind}"


def _gvk(kind: Kind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _paths(kind: Kind) -> JsonObject:
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = f"{kind.path}{scope}/{kind.plural}"
    paths: JsonObject = {
        collection: {"get": _operation(kind, "list"), "post": _operation(kind, "post", _QUERY)},
    }
    if "get" in kind.verbs:
        paths[f"{collection}/{{name}}"] = {
            "get": _operation(kind, "get"),
            "put": _operation(kind, "put", _QUERY),
            "patch": _operation(kind, "patch", _QUERY),
            "delete": _operation(kind, "delete", {"dryRun": _QUERY["dryRun"]}),
        }
    return paths


def _operation(kind: Kind, action: str, query: Mapping[str, str] | None = None) -> JsonObject:
    schema = {"$ref": f"#/components/schemas/{_schema_name(kind)}"}
    return {
        "operationId": f"{action}{kind.group.title().replace('.', '')}{kind.version.title()}{kind.kind}",
        "parameters": [
            {
                "name": name,
                "in": "query",
                "description": text,
                "schema": {"type": "string", "uniqueItems": True},
            }
            for name, text in (query or {}).items()
        ],
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(kind),
    }


def _schema(kind: Kind) -> JsonObject:
    body = {
        name: {"type": of_type, "description": _DESCRIPTIONS.get(name, f"The {name} of the {kind.kind}.")}
        for name, of_type in _BODIES.get(kind.kind, _SPEC_AND_STATUS).items()
    }
    metadata = {
        "description": "Standard object's metadata.",
        "allOf": [{"$ref": f"#/components/schemas/{_OBJECT_META}"}],
        "default": {},
    }
    return {
        "type": "object",
        "description": f"{kind.kind}, as the embedded cluster serves it.",
        "properties": {
            "apiVersion": {**_STRING, "description": "The versioned schema of this representation."},
            "kind": {**_STRING, "description": "The REST resource this object represents."},
            "metadata": metadata,
            **body,
        },
        "x-kubernetes-group-version-kind": [_gvk(kind)],
    }


def _object_meta() -> JsonObject:
    strings = (
        "creationTimestamp",
        "deletionTimestamp",
        "generateName",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    )
    return {
        "type": "object",
        "description": "Metadata that every persisted object has.",
        "properties": {
            **{name: {**_STRING, "description": f"The {name} of the object."} for name in strings},
            "annotations": {**_LABELS, "description": "Unstructured key value map for tools."},
            "finalizers": {
                "type": "array",
                "items": _STRING,
                "description": "What must happen before removal.",
            },
            "generation": {
                "type": "integer",
                "format": "int64",
                "description": "Counts changes of the spec.",
            },
            "labels": {**_LABELS, "description": "Key value map by which objects are selected."},
            "ownerReferences": {
                "type": "array",
                "items": {"type": "object"},
                "description": "Objects this one depends on.",
            },
        },
    }
