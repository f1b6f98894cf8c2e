"""
The spec of a new pod as the API server stores it: label keys merged, requests, host ports and tolerations filled in.

Limit ranges, priority classes and runtime classes are not applied: they need more than the manifest. Priority classes
are applied before, by `tools.explain.priority_classes`.

Source: pkg/apis/core/v1/defaults.go, DefaultTolerationSeconds (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final

from scheduler.engine.model.semantics import Gate, Semantics
from scheduler.engine.syntax.match_label_keys import Json, merged_affinity, merged_spread
from scheduler.tools.explain.formats.json_values import mapping_or_empty

_NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EVICTION_AFTER_S: Final = 300


def stored_spec(spec: Json, labels: Json, semantics: Semantics) -> Json:
    """Return the spec of a pod with these labels as the API server stores it, as far as a scheduler reads it."""
    # A pod saved from a cluster names its node; the question is where a new one would go.
    stored: dict[str, object] = {field: value for field, value in spec.items() if field != "nodeName"}
    affinity, constraints = spec.get("affinity"), spec.get("topologySpreadConstraints")
    if isinstance(affinity, Mapping):
        stored["affinity"] = merged_affinity(affinity, labels)
    if isinstance(constraints, list):
        stored["topologySpreadConstraints"] = [
            merged_spread(
                constraint,
                labels,
                enabled=semantics.enabled(Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD),
                merged=semantics.enabled(Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD_SELECTOR_MERGE),
            )
            if isinstance(constraint, Mapping)
            else constraint
            for constraint in constraints
        ]
    on_host = spec.get("hostNetwork") is True
    for field in ("containers", "initContainers"):
        containers = spec.get(field)
        if isinstance(containers, list):
            stored[field] = [_stored_container(container, on_host=on_host) for container in containers]
    stored["resources"] = _with_pod_requests(stored)
    stored["tolerations"] = _with_default_tolerations(spec.get("tolerations") or [])
    return stored


def _stored_container(container: object, *, on_host: bool) -> object:
    if not isinstance(container, Mapping):
        return container  # the decoder reports it
    stored = dict(container)
    resources = container.get("resources")
    if isinstance(resources, Mapping) and isinstance(resources.get("limits"), Mapping):
        # A limit without a request becomes the request.
        requests = resources.get("requests") or {}
        if isinstance(requests, Mapping):
            stored["resources"] = {**resources, "requests": {**resources["limits"], **requests}}
    ports = container.get("ports")
    if on_host and isinstance(ports, list):
        stored["ports"] = [
            {**port, "hostPort": port.get("hostPort") or port.get("containerPort")}
            if isinstance(port, Mapping)
            else port
            for port in ports
        ]
    return stored


def _with_pod_requests(spec: Json) -> object:
    """
    Return the resources of the pod as a whole; a limit is the request of what no container requests.

    Containers may request fewer huge pages than the pod, which are reserved all the same.
    """
    resources = spec.get("resources")
    limits = mapping_or_empty(mapping_or_empty(resources).get("limits"))
    if not isinstance(resources, Mapping) or not limits:
        return resources
    containers = [spec.get(field) for field in ("containers", "initContainers")]
    of_containers = {
        name
        for container in chain.from_iterable(each for each in containers if isinstance(each, list))
        for name in mapping_or_empty(
            mapping_or_empty(mapping_or_empty(container).get("resources")).get("requests")
        )
    }
    missing = {
        name: limit
        for name, limit in limits.items()
        if name not in of_containers or name.startswith("hugepages-")
    }
    requests = resources.get("requests") or {}
    return {**resources, "requests": {**missing, **requests}} if isinstance(requests, Mapping) else resources


def _with_default_tolerations(tolerations: object) -> object:
    """Add the tolerations that let a pod stay five minutes on a node that is not ready or unreachable."""
    if not isinstance(tolerations, list) or not all(isinstance(one, Mapping) for one in tolerations):
        return tolerations
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _EVICTION_AFTER_S}
        for key in _NOT_READY
        if not any(
            (one.get("key") or key) == key and (one.get("effect") or "NoExecute") == "NoExecute"
            for one in tolerations
        )
    ]
    return [*tolerations, *added]
