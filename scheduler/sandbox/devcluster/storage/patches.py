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
    result = root[""]
    if not isinstance(result, dict):
        raise _unprocessable()
    return result


def _unprocessable() -> StatusError:
    """Return a 422; upstream says neither which operation failed nor why."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message, details={})


def _operate(root: JsonObject, operation: JsonObject) -> None:
    path = operation.get("path")
    if not isinstance(path, str):
        raise _unprocessable()
    steps = _steps(path)
    match operation.get("op"):
        case "add":
            _add(root, steps, operation.get("value"))
        case "remove":
            _take(root, steps)
        case "replace":
            _replace(root, steps, operation.get("value"))
        case "move":
            _add(root, steps, _take(root, _steps(str(operation.get("from", "")))))
        case "copy":
            _add(root, steps, _look(root, _steps(str(operation.get("from", "")))))
        case "test":
            if _look(root, steps) != operation.get("value"):
                raise _unprocessable()
        case _:
            raise _unprocessable()


def _steps(pointer: str) -> list[str]:
    """Return a JSON pointer's steps below the wrapped root."""
    if pointer and not pointer.startswith("/"):
        raise _unprocessable()
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")]


def _look(root: JsonObject, steps: list[str]) -> Any:  # noqa: ANN401 - any JSON value may be there
    value: Any = root
    for step in steps:
        value = _child(value, step)
    return value


def _child(container: Any, step: str) -> Any:  # noqa: ANN401 - any JSON value may be there
    if isinstance(container, dict):
        if step in container:
            return container[step]
    elif isinstance(container, list) and step.isdigit() and int(step) < len(container):
        return container[int(step)]
    raise _unprocessable()


def _add(root: JsonObject, steps: list[str], value: Any) -> None:  # noqa: ANN401 - any JSON value
    parent = _look(root, steps[:-1])
    step = steps[-1]
    if isinstance(parent, dict):
        parent[step] = value
    elif isinstance(parent, list) and (step == "-" or (step.isdigit() and int(step) <= len(parent))):
        parent.insert(len(parent) if step == "-" else int(step), value)
    else:
        raise _unprocessable()


def _replace(root: JsonObject, steps: list[str], value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Replace a value, or, unlike the RFC, add a missing one."""
    parent = _look(root, steps[:-1])
    if isinstance(parent, dict):
        parent[steps[-1]] = value
    else:
        _child(parent, steps[-1])
        parent[int(steps[-1])] = value


def _take(root: JsonObject, steps: list[str]) -> Any:  # noqa: ANN401 - any JSON value
    if len(steps) == 1:
        raise _unprocessable()
    parent = _look(root, steps[:-1])
    value = _child(parent, steps[-1])
    if isinstance(parent, dict):
        del parent[steps[-1]]
    else:
        del parent[int(steps[-1])]
    return value
