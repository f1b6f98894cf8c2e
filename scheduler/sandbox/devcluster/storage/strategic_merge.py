"""
Strategic merge patch: a merge patch (RFC 7386) in which some lists merge by a key.

Source: apimachinery pkg/util/strategicpatch/patch.go, and the patchStrategy and patchMergeKey tags of
api/core/v1, api/apps/v1 and api/meta/v1 (kubernetes 1.36). Difference: `$patch` is read in lists alone.
"""

from collections.abc import Mapping
from typing import Any, Final

from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.status import bad_request

#: Path of a list below a pod spec -> its merge key; "" for a list of plain values that merge as a set.
_POD_SPEC: Final = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
}
_CONTAINER: Final = {
    "ports": "containerPort",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
_CONTAINER_LISTS: Final = ("containers", "initContainers", "ephemeralContainers")


def _pod_spec_keys(prefix: str) -> dict[str, str]:
    keys = {f"{prefix}.{name}": key for name, key in _POD_SPEC.items()}
    for containers in _CONTAINER_LISTS:
        keys |= {f"{prefix}.{containers}[].{name}": key for name, key in _CONTAINER.items()}
    return keys


_METADATA: Final = {"metadata.ownerReferences": "uid", "metadata.finalizers": ""}
_STATUS: Final = {"status.conditions": "type"}
_TEMPLATE: Final = (
    _pod_spec_keys("spec.template.spec")
    | {"spec.template.metadata.ownerReferences": "uid", "spec.template.metadata.finalizers": ""}
    | _STATUS
)
_BY_STORAGE: Final[Mapping[str, Mapping[str, str]]] = {
    "pods": _pod_spec_keys("spec")
    | _STATUS
    | {"status.podIPs": "ip", "status.hostIPs": "ip", "status.resourceClaimStatuses": "name"},
    "nodes": _STATUS | {"status.addresses": "type", "spec.podCIDRs": ""},
    "namespaces": _STATUS,
    "services": _STATUS | {"spec.ports": "port"},
    "serviceaccounts": {"secrets": "name", "imagePullSecrets": "name"},
    "replicationcontrollers": _TEMPLATE,
    "deployments.apps": _TEMPLATE,
    "replicasets.apps": _TEMPLATE,
    "statefulsets.apps": _TEMPLATE,
    "daemonsets.apps": _TEMPLATE,
    "jobs.batch": _TEMPLATE,
    "persistentvolumeclaims": _STATUS,
    "resourceclaims.resource.k8s.io": {"status.reservedFor": "uid"},
    "poddisruptionbudgets.policy": _STATUS,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": {"webhooks": "name"},
    "validatingwebhookconfigurations.admissionregistration.k8s.io": {"webhooks": "name"},
}
_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DROP: Final = "$deleteFromPrimitiveList/"


def merge_keys(kind: Kind) -> Mapping[str, str]:
    """Return the merge key of every list of `kind` that merges, by its path; "" is the value itself."""
    return {**_METADATA, **_BY_STORAGE.get(kind.storage, {})}


def merged(original: JsonObject, patch: JsonObject, keys: Mapping[str, str], path: str = "") -> JsonObject:
    """
    Return the object with the patch merged in; `keys` are the merge keys of lists by their paths, which follow `path`.

    Raises: StatusError 400 if an element lacks its merge key.
    """
    result = dict(original)
    if _RETAIN in patch:
        kept = set(patch[_RETAIN])
        result = {key: value for key, value in result.items() if key in kept}
    for key, value in patch.items():
        below = f"{path}.{key}" if path else key
        if key.startswith(_DROP):
            name = key.removeprefix(_DROP)
            if isinstance(result.get(name), list):
                result[name] = [one for one in result[name] if one not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            stored = result.get(key)
            result[key] = merged(stored if isinstance(stored, dict) else {}, value, keys, below)
        elif isinstance(value, list) and below in keys:
            stored = result.get(key)
            result[key] = _merged_list(stored if isinstance(stored, list) else [], value, below, keys)
        else:
            result[key] = _without_directives(value)
    _order_lists(result, patch, path, keys)
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


def _merged_list(original: list[Any], patch: list[Any], path: str, keys: Mapping[str, str]) -> list[Any]:
    merge_key = keys[path]
    if not merge_key:
        return [*original, *(one for one in patch if one not in original)]
    replacing = [one for one in patch if isinstance(one, dict) and one.get(_DIRECTIVE) == "replace"]
    if replacing:
        return [_without_directives(one) for one in patch if one not in replacing or len(one) > 1]
    result = list(original)
    for element in patch:
        if not isinstance(element, dict) or merge_key not in element:
            raise bad_request(f"map: {element} does not contain declared merge key: {merge_key}")
        at = next((i for i, one in enumerate(result) if one.get(merge_key) == element[merge_key]), None)
        if element.get(_DIRECTIVE) == "delete":
            result = [one for one in result if one.get(merge_key) != element[merge_key]]
        elif at is None:
            result.append(merged({}, element, keys, f"{path}[]"))
        else:
            result[at] = merged(result[at], element, keys, f"{path}[]")
    return result


def _order_lists(result: JsonObject, patch: JsonObject, path: str, keys: Mapping[str, str]) -> None:
    """Sort lists as $setElementOrder says; elements that it does not name keep their neighbours."""
    for directive, wanted in patch.items():
        if not directive.startswith(_ORDER):
            continue
        name = directive.removeprefix(_ORDER)
        elements = result.get(name)
        merge_key = keys.get(f"{path}.{name}" if path else name)
        if not isinstance(elements, list) or merge_key is None:
            continue
        rank = {one[merge_key] if merge_key else one: index for index, one in enumerate(wanted)}
        identities = [one.get(merge_key) if merge_key else one for one in elements]
        named = [index for index, identity in enumerate(identities) if identity in rank]
        in_order = iter(sorted(named, key=lambda index: rank[identities[index]]))
        result[name] = [
            elements[next(in_order)] if identity in rank else one
            for one, identity in zip(elements, identities, strict=True)
        ]
