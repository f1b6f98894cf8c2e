"""
CustomResourceDefinitions: their rules, and the kinds that they define.

Source: apiextensions-apiserver pkg/apis/apiextensions (v1/defaults.go, validation/validation.go), pkg/controller/
{establish,status}, and pkg/registry/customresource (kubernetes 1.36). Differences: a definition is established when it
is created, names may clash, and the objects are data: no schema is applied and no version converted.
"""

from collections.abc import Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.sandbox.devcluster.admission.strategy import Strategy, View
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind, PrinterColumn

_AGE: Final = PrinterColumn("Age", "date", ".metadata.creationTimestamp", wide=False)


def kinds_of(definition: JsonObject) -> tuple[Kind, ...]:
    """Return a kind for each served version of a definition."""
    spec, names = definition["spec"], definition["spec"]["names"]
    return tuple(
        Kind(
            spec["group"],
            version["name"],
            names["kind"],
            names["plural"],
            names["singular"],
            namespaced=spec.get("scope") == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            # The other one, `scale`, is not served.
            subresources=("status",) if "status" in (version.get("subresources") or {}) else (),
            printer_columns=_columns(version),
        )
        for version in spec["versions"]
        if version.get("served")
    )


def _columns(version: JsonObject) -> tuple[PrinterColumn, ...]:
    columns = version.get("additionalPrinterColumns") or ()
    return tuple(
        PrinterColumn(one["name"], one["type"], one["jsonPath"], wide=bool(one.get("priority")))
        for one in columns
    ) or (_AGE,)


def _default_names(definition: JsonObject) -> None:
    names = definition["spec"]["names"]
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")


def _prepare_definition(definition: JsonObject, view: View) -> None:
    """Accept the names and establish the definition, as upstream's controllers do a moment later."""
    spec = definition["spec"]
    texts = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    definition["status"] = {
        "conditions": [
            {
                "type": name,
                "status": "True",
                "lastTransitionTime": view.now,
                "reason": reason,
                "message": text,
            }
            for name, reason, text in texts
        ],
        "acceptedNames": spec["names"],
        "storedVersions": [one["name"] for one in spec.get("versions") or () if one.get("storage")],
    }


def _definition_errors(definition: JsonObject) -> Iterator[FieldError]:
    spec, name = definition["spec"], definition["metadata"].get("name", "")
    if name != f"{spec['names'].get('plural')}.{spec.get('group')}":
        yield field_errors.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


DEFINITIONS: Final = Strategy(
    required="spec.group spec.names.plural spec.names.kind spec.scope spec.versions spec.versions[].name "
    "spec.versions[].schema.openAPIV3Schema",
    choices={"spec.scope": ("Cluster", "Namespaced")},
    defaults={"spec.names": {}, "spec.conversion": {"strategy": "None"}},
    has_generation=True,
    set_defaults=_default_names,
    prepare_create=_prepare_definition,
    validate=_definition_errors,
)
CUSTOM: Final = Strategy(has_generation=True, unconditional_update=False)
CUSTOM_WITH_STATUS: Final = Strategy(
    has_generation=True,
    unconditional_update=False,
    prepare_create=lambda obj, _: obj.pop("status", None),
)
