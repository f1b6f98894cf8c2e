"""
The rules of metadata, which every object keeps, and of names. Difference: owners are not checked.

Source: apimachinery pkg/api/validation/objectmeta.go, pkg/apis/meta/v1/validation (kubernetes 1.36).
"""

from collections.abc import Callable, Iterator

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import label_key_faults, label_value_faults
from scheduler.sandbox.devcluster.kinds import JsonObject


def well_formed(text: str, path: str, faults: Callable[[str], list[str]]) -> Iterator[FieldError]:
    """Yield an error for every fault of a name, a label's key or a label's value."""
    return (field_errors.invalid(path, text, fault) for fault in faults(text))


def metadata_errors(metadata: JsonObject, name_faults: Callable[[str], list[str]]) -> Iterator[FieldError]:
    """Yield the rules that name, labels and annotations of an object break."""
    if metadata.get("generateName"):
        # The generated suffix follows, so a trailing dash is valid here.
        prefix = metadata["generateName"].rstrip("-") or "-"
        for fault in name_faults(prefix):
            yield field_errors.invalid("metadata.generateName", metadata["generateName"], fault)
    if not metadata.get("name"):
        yield field_errors.required("metadata.name", "name or generateName is required")
    else:
        yield from well_formed(metadata["name"], "metadata.name", name_faults)
    yield from label_errors(metadata.get("labels") or {}, "metadata.labels")
    for key in sorted(metadata.get("annotations") or {}):
        for fault in label_key_faults(key.lower()):
            yield field_errors.invalid("metadata.annotations", key, fault)


def label_errors(labels: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield the rules that a map of labels breaks."""
    for key in sorted(labels):
        yield from well_formed(key, path, label_key_faults)
        yield from well_formed(labels[key], path, label_value_faults)


def metadata_update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Yield the rules that a change of metadata breaks."""
    if new.get("uid") not in (None, "", old["uid"]):
        yield field_errors.invalid("metadata.uid", new["uid"], "field is immutable")
    if old.get("deletionTimestamp"):
        added = [name for name in new.get("finalizers") or [] if name not in (old.get("finalizers") or [])]
        if added:
            found = f"[{' '.join(field_errors.go_text(name) for name in added)}]"
            detail = (
                f"no new finalizers can be added if the object is being deleted, found new finalizers {found}"
            )
            yield field_errors.forbidden("metadata.finalizers", detail)
