"""
What a kind adds to the verbs of the store: preparation, validation, and how it dies.

The default here suits kinds that are data; pods, namespaces and others override what differs.
Source: apiserver pkg/registry/rest (kubernetes 1.36) and the strategies under pkg/registry.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scheduler.devcluster import fields
from scheduler.devcluster.fields import FieldError
from scheduler.devcluster.kinds import JsonObject, Kind

#: Find an object by kind, namespace and name; None if there is none.
Find = Callable[[Kind, str, str], JsonObject | None]


@dataclass(frozen=True, slots=True)
class View:
    """What a strategy may know beside the object: the time, as metadata prints it, and other objects."""

    now: str
    find: Find


@dataclass(frozen=True, slots=True)
class Strategy:
    """
    The default behaviour of a kind.

    Attributes say what is true of the kind; the methods are called by the store with objects that the caller
    owns, so `prepare_*` write into `obj` and `new`.
    """

    #: metadata.generation is 1 at creation and grows when anything beside metadata and status changes.
    has_generation: bool = False
    #: `status` belongs to the status subresource: creation drops it and updates keep the stored one.
    has_status: bool = False
    #: Deletion answers with the object that went, not with a Status.
    returns_deleted: bool = False
    #: An update without resourceVersion is taken.
    unconditional_update: bool = True
    #: A PUT to a name that is free creates the object.
    create_on_update: bool = False
    #: The status subresource may also change labels and annotations.
    status_writes_metadata: bool = False

    def name_faults(self, name: str) -> list[str]:
        """Why `name` is none for this kind; empty if it is one."""
        return fields.subdomain_faults(name)

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """Defaults are set, and what a client may not set is dropped. Raises: StatusError from admission."""
        if self.has_status:
            obj["status"] = self.initial_status(obj, view)

    def initial_status(self, obj: JsonObject, view: View) -> JsonObject:  # noqa: ARG002 - for kinds that read them
        """The status of a new object."""
        return {}

    def validate_create(self, obj: JsonObject) -> list[FieldError]:  # noqa: ARG002 - data kinds take any shape
        """The rules that a new object breaks, beside those of metadata."""
        return []

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """Defaults are set on the new state, and what a client may not change is as it was."""

    def validate_update(self, new: JsonObject, old: JsonObject) -> list[FieldError]:  # noqa: ARG002
        """The rules that the change breaks, beside those of metadata."""
        return self.validate_create(new)

    def validate_status_update(self, new: JsonObject) -> list[FieldError]:  # noqa: ARG002
        """The rules that a new status breaks."""
        return []

    def grace_period_s(self, obj: JsonObject, asked_s: int | None) -> int:  # noqa: ARG002
        """Seconds between the deletion and the end of the object; 0 = it goes at once."""
        return 0


def validate_labels(labels: object, path: str) -> list[FieldError]:
    """The rules that a map of labels breaks."""
    errors: list[FieldError] = []
    if not isinstance(labels, Mapping):
        return errors
    for key in sorted(labels):
        errors += [fields.invalid(path, key, fault) for fault in fields.qualified_name_faults(key)]
        errors += [
            fields.invalid(path, labels[key], fault) for fault in fields.label_value_faults(labels[key])
        ]
    return errors


def validate_metadata(metadata: JsonObject, strategy: Strategy) -> list[FieldError]:
    """The rules that the metadata of an object breaks: its name, labels, annotations and owners."""
    errors: list[FieldError] = []
    if metadata.get("generateName"):
        # The generated suffix follows, so a trailing dash is fine here.
        prefix = metadata["generateName"].rstrip("-") or "-"
        errors += [
            fields.invalid("metadata.generateName", metadata["generateName"], fault)
            for fault in strategy.name_faults(prefix)
        ]
    if not metadata.get("name"):
        errors.append(fields.required("metadata.name", "name or generateName is required"))
    else:
        name = metadata["name"]
        errors += [fields.invalid("metadata.name", name, fault) for fault in strategy.name_faults(name)]
    errors += validate_labels(metadata.get("labels"), "metadata.labels")
    for key in sorted(metadata.get("annotations") or {}):
        faults = fields.qualified_name_faults(key.lower())
        errors += [fields.invalid("metadata.annotations", key, fault) for fault in faults]
    errors += _validate_owners(metadata.get("ownerReferences") or [])
    return errors


def _validate_owners(owners: list[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    for owner in owners:
        path = "metadata.ownerReferences"
        if not owner.get("apiVersion"):
            errors.append(fields.invalid(f"{path}.apiVersion", "", "version must not be empty"))
        errors += [
            fields.invalid(f"{path}.{name}", "", "must not be empty")
            for name in ("kind", "name", "uid")
            if not owner.get(name)
        ]
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        one, two = (f"{owner.get('kind')}/{owner.get('name')}" for owner in controllers[:2])
        detail = f'Only one reference can have Controller set to true. Found "true" in references for {one} and {two}'
        errors.append(fields.invalid("metadata.ownerReferences", owners, detail))
    return errors


def validate_metadata_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """The rules that a change of metadata breaks: what names an object can't change."""
    errors: list[FieldError] = []
    if new.get("uid") not in (None, "", old["uid"]):
        errors.append(fields.invalid("metadata.uid", new["uid"], "field is immutable"))
    if old.get("deletionTimestamp"):
        added = [name for name in new.get("finalizers") or [] if name not in (old.get("finalizers") or [])]
        if added:
            shown = f"[{' '.join(fields.shown(name) for name in added)}]"
            detail = (
                f"no new finalizers can be added if the object is being deleted, found new finalizers {shown}"
            )
            errors.append(fields.forbidden("metadata.finalizers", detail))
    return errors
