"""
Patches: JSON patch, merge patch, strategic merge patch, and apply as a merge.

Source: RFC 6902, RFC 7386; apiserver pkg/endpoints/handlers/patch.go (kubernetes 1.36). Server-side apply is
create-or-merge here: no field ownership is kept, so it never removes a field and never conflicts. JSON patches neither
move nor copy.
"""

from enum import Enum
from typing import Any

from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.status import StatusError, bad_request, refused
from scheduler.sandbox.devcluster.storage.strategic_merge import merged

#: A JSON patch: its operations in order.
JsonPatch = list[JsonObject]


class PatchType(Enum):
    """The type of a patch, by its content type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


def patched(obj: JsonObject, patch: JsonObject | JsonPatch, patch_type: PatchType, kind: Kind) -> JsonObject:
    """
    Return the patched object; `obj` is the caller's own and may be changed.

    Raises: StatusError 400 if the patch has the wrong shape, 415 if the kind takes no patch of this type, 422 if a JSON
        patch cannot be applied.
    """
    if patch_type is PatchType.JSON:
        if not isinstance(patch, list) or not all(isinstance(one, dict) for one in patch):
            raise bad_request("error decoding patch: a JSON patch is an array of objects")
        return _json_patched(obj, patch)
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: it is no object")
    if kind.is_custom and patch_type is PatchType.STRATEGIC:
        raise refused(415, "custom resources take no strategic merge patch")
    return merged(obj, patch, by_keys=patch_type is not PatchType.MERGE and not kind.is_custom)


def _json_patched(obj: JsonObject, operations: list[JsonObject]) -> JsonObject:
    """Apply the operations of a JSON patch (RFC 6902) in order, all or nothing."""
    # The document is wrapped so that the empty pointer has a parent like every other.
    root: JsonObject = {"": obj}
    for operation in operations:
        _operate(root, operation)
    result = root.get("")
    if not isinstance(result, dict):
        raise _unprocessable()
    return result


def _unprocessable() -> StatusError:
    """Return a 422; upstream says neither which operation failed nor why."""
    return refused(422, "the server rejected our request due to an error in our request")


def _operate(root: JsonObject, operation: JsonObject) -> None:
    name, value = operation.get("op"), operation.get("value")
    parent, step = _place(root, operation.get("path"))
    if name == "add" and isinstance(parent, list):
        parent.insert(len(parent) if step == "-" else _position(parent, step, new=True), value)
    elif name == "add" or (name == "replace" and isinstance(parent, dict)):
        # Unlike the RFC, upstream adds what `replace` does not find.
        parent[step] = value
    elif name == "replace":
        parent[_position(parent, step)] = value
    elif name == "remove":
        _value(parent, step)
        del parent[_position(parent, step)]
    elif name != "test" or _value(parent, step) != value:
        raise _unprocessable()


def _place(root: JsonObject, pointer: object) -> tuple[Any, str]:
    """Return the container and the last step of a JSON pointer below the wrapped root."""
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise _unprocessable()
    *steps, last = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")]
    container: Any = root
    for step in steps:
        container = _value(container, step)
    if not isinstance(container, dict | list):
        raise _unprocessable()
    return container, last


def _value(container: Any, step: str) -> Any:  # noqa: ANN401 - any JSON value may be there
    if isinstance(container, dict) and step in container:
        return container[step]
    if isinstance(container, list):
        return container[_position(container, step)]
    raise _unprocessable()


def _position(container: Any, step: str, *, new: bool = False) -> Any:  # noqa: ANN401 - a key or an index
    if isinstance(container, dict):
        return step
    if step.isdigit() and int(step) < len(container) + new:
        return int(step)
    raise _unprocessable()
