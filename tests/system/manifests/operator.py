"""CustomResourceDefinitions for the parts of the Prometheus operator that manifests/monitoring uses."""

from tests.support.build import Json

_TEXT: Json = {"type": "string"}
_TEXTS: Json = {"type": "object", "additionalProperties": _TEXT}


def _object(required: tuple[str, ...] = (), **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


_RULE = _object(("expr",), alert=_TEXT, expr=_TEXT, labels=_TEXTS, annotations=_TEXTS, **{"for": _TEXT})
_GROUP = _object(("name",), name=_TEXT, interval=_TEXT, rules=_array(_RULE))
_SPECS = {
    "PrometheusRule": _object(groups=_array(_GROUP)),
    "ServiceMonitor": _object(
        ("endpoints", "selector"),
        jobLabel=_TEXT,
        namespaceSelector=_object(any={"type": "boolean"}, matchNames=_array(_TEXT)),
        selector=_object(
            matchLabels=_TEXTS,
            matchExpressions=_array(_object(key=_TEXT, operator=_TEXT, values=_array(_TEXT))),
        ),
        endpoints=_array(
            _object(
                port=_TEXT,
                path=_TEXT,
                interval=_TEXT,
                scheme=_TEXT,
                authorization=_object(credentials=_object(name=_TEXT, key=_TEXT)),
                tlsConfig=_object(insecureSkipVerify={"type": "boolean"}),
            )
        ),
    ),
}


def definitions() -> list[Json]:
    """Return CustomResourceDefinitions. Source: the operator's API reference, monitoring.coreos.com/v1."""
    return [_definition(kind, spec) for kind, spec in _SPECS.items()]


def _definition(kind: str, spec: Json) -> Json:
    group, plural = "monitoring.coreos.com", f"{kind.lower()}s"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object(("spec",), spec=spec)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [version],
        },
    }
