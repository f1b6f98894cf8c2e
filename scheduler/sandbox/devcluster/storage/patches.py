"""
Patches: JSON patch, merge patch, strategic merge patch, and apply as a merge.

Source: RFC 6902, RFC 7386; apiserver pkg/endpoints/handlers/patch.go (kubernetes 1.36). Server-side apply is
create-or-merge here: no field ownership is kept, so it never removes a field and never conflicts.
"""

from enum import Enum
from typing import Any

from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.status import StatusError, bad_request, unsupported_media_type
from scheduler.sandbox.devcluster.storage.strategic_merge import strategically_merged

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
        if not isinstance(patch, list):
            raise bad_request(
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
            )
        return _json_patched(obj, patch)
    if not isinstance(patch, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        )
    if patch_type is PatchType.MERGE:
        merged: JsonObject = merge_patched(obj, patch)
        return merged
    if kind.is_custom and patch_type is PatchType.STRATEGIC:
        raise unsupported_media_type([one.value for one in PatchType if one is not PatchType.STRATEGIC])
    return strategically_merged(obj, patch, kind)


def merge_patched(target: Any, patch: Any) -> Any:  # noqa: ANN401 - RFC 7386 is defined on any JSON value
    """Return a merge patch applied to any JSON value (RFC 7386): null removes, objects merge, the rest replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patched(result.get(key), value)
    return result


def _json_patched(obj: JsonObject, operations: list[JsonObject]) -> JsonObject:
    """Apply the operations of a JSON patch (RFC 6902) in order, all or nothing."""
    # The document is wrapped so that the empty pointer has a parent like every other.
    root: JsonObject = {"": obj}
    for operation in operations:
        if not isinstance(operation, dict):
            raise bad_request("error decoding patch: every operation of a JSON patch must be an object")
        _operate(root, operation)
    result = root.get("")
    if not isinstance(result, dict):
        raise _unprocessable()
    return result


def _unprocessable() -> StatusError:
    """Return a 422; upstream says neither which operation failed nor why."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message, details={})


def _operate(root: JsonObject, operation: JsonObject) -> None:
    name, value = operation.get("op"), operation.get("value")
    parent, step = _place(root, operation.get("path"))
    if name in ("move", "copy"):
        source, source_step = _place(root, operation.get("from"))
        value = _value(source, source_step)
        if name == "move":
            del source[_position(source, source_step)]
        # The first step of the target may have lain in what moved.
        parent, step = _place(root, operation.get("path"))
        name = "add"
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
