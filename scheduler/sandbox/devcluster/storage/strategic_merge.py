"""
Strategic merge patch: a merge patch (RFC 7386) in which some lists merge by a key.

Source: apimachinery pkg/util/strategicpatch/patch.go, and the patchStrategy and patchMergeKey tags of
api/core/v1, api/apps/v1 and api/meta/v1 (kubernetes 1.36). Differences: lists of one name merge alike in every kind;
`$patch` is read in lists alone.
"""

from typing import Any, Final

from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.status import bad_request

#: Name of a list -> its merge key; "" for a list of plain values that merge as a set. A service's ports have no
#: containerPort.
_KEYS: Final = {
    **dict.fromkeys(
        ("containers", "initContainers", "ephemeralContainers", "volumes", "imagePullSecrets", "schedulingGates",
         "resourceClaims", "env", "resourceClaimStatuses", "secrets", "webhooks"),
        ("name",),
    ),
    **dict.fromkeys(("conditions", "addresses"), ("type",)),
    **dict.fromkeys(("hostAliases", "podIPs", "hostIPs"), ("ip",)),
    **dict.fromkeys(("ownerReferences", "reservedFor"), ("uid",)),
    **dict.fromkeys(("finalizers", "podCIDRs"), ("",)),
    "topologySpreadConstraints": ("topologyKey",),
    "ports": ("containerPort", "port"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
}  # fmt: skip
_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DROP: Final = "$deleteFromPrimitiveList/"


def merged(original: JsonObject, patch: JsonObject, *, by_keys: bool) -> JsonObject:
    """
    Return the object with the patch merged in; without `by_keys` every list is replaced, as in a merge patch.

    Raises: StatusError 400 if an element lacks its merge key.
    """
    result = dict(original)
    if _RETAIN in patch:
        result = {key: value for key, value in result.items() if key in patch[_RETAIN]}
    for key, value in patch.items():
        stored = result.get(key)
        if key.startswith(_DROP):
            name = key.removeprefix(_DROP)
            if isinstance(result.get(name), list):
                result[name] = [one for one in result[name] if one not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(stored if isinstance(stored, dict) else {}, value, by_keys=by_keys)
        elif isinstance(value, list) and by_keys and key in _KEYS:
            result[key] = _merged_list(stored if isinstance(stored, list) else [], value, _KEYS[key])
        else:
            result[key] = _without_directives(value)
    for directive, wanted in patch.items():
        name = directive.removeprefix(_ORDER)
        if directive.startswith(_ORDER) and isinstance(result.get(name), list) and name in _KEYS:
            result[name] = _in_order(
                result[name], [_identity(one, _KEYS[name]) for one in wanted], _KEYS[name]
            )
    return result


def _without_directives(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value of a patch as it is stored, without directives."""
    if isinstance(value, dict):
        return {
            k: _without_directives(v) for k, v in value.items() if not k.startswith("$") and v is not None
        }
    if isinstance(value, list):
        return [_without_directives(one) for one in value]
    return value


def _identity(element: Any, keys: tuple[str, ...]) -> Any:  # noqa: ANN401 - any JSON value
    """Return what tells an element from the others of its list; None if it lacks its merge key."""
    if keys == ("",):
        return element
    values = (element.get(key) for key in keys) if isinstance(element, dict) else ()
    return next((value for value in values if value is not None), None)


def _merged_list(original: list[Any], patch: list[Any], keys: tuple[str, ...]) -> list[Any]:
    if keys == ("",):
        return [*original, *(one for one in patch if one not in original)]
    replacing = [one for one in patch if isinstance(one, dict) and one.get(_DIRECTIVE) == "replace"]
    if replacing:
        return [_without_directives(one) for one in patch if one not in replacing or len(one) > 1]
    result = list(original)
    for element in patch:
        identity = _identity(element, keys)
        if identity is None:
            raise bad_request(f"map: {element} does not contain declared merge key: {keys[0]}")
        at = next((i for i, one in enumerate(result) if _identity(one, keys) == identity), None)
        if element.get(_DIRECTIVE) == "delete":
            result = [one for one in result if _identity(one, keys) != identity]
        elif at is None:
            result.append(merged({}, element, by_keys=True))
        else:
            result[at] = merged(result[at], element, by_keys=True)
    return result


def _in_order(elements: list[Any], wanted: list[Any], keys: tuple[str, ...]) -> list[Any]:
    """Return the elements in the order of $setElementOrder; those that it does not name keep their neighbours."""
    identities = [_identity(one, keys) for one in elements]
    named = (index for index, identity in enumerate(identities) if identity in wanted)
    in_order = iter(sorted(named, key=lambda index: wanted.index(identities[index])))
    return [
        elements[next(in_order)] if identity in wanted else one
        for one, identity in zip(elements, identities, strict=True)
    ]
