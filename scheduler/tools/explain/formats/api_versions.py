"""
Documents of resource.k8s.io in earlier versions, as the API server converts them to v1.

Source: pkg/apis/resource/v1beta1/conversion.go, v1alpha3 and v1beta2 (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from scheduler.engine.model.match_label_keys import Json

_EARLIER: Final = ("resource.k8s.io/v1alpha3", "resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2")
#: Fields of a request that v1 keeps beside those of the devices that it is for.
_OF_REQUEST: Final = ("name", "firstAvailable", "exactly")


def converted(document: Json) -> Json:
    """Return the document in v1 if it is of an earlier version of resource.k8s.io, else as it is."""
    if document.get("apiVersion") not in _EARLIER:
        return document
    document = {**document, "apiVersion": "resource.k8s.io/v1"}
    match document.get("kind"):
        case "ResourceClaim":
            return _changed(document, ("spec", "devices", "requests"), _request)
        case "ResourceClaimTemplate":
            return _changed(document, ("spec", "spec", "devices", "requests"), _request)
        case "ResourceSlice":
            return _changed(document, ("spec", "devices"), _device)
    return document


def _changed(value: Json, path: tuple[str, ...], change: Callable[[Json], Json]) -> Json:
    """Return the object with each object of the list at the path changed; what is no list is left as it is."""
    field, *rest = path
    inner = value.get(field)
    if rest and isinstance(inner, Mapping):
        return {**value, field: _changed(inner, tuple(rest), change)}
    if not rest and isinstance(inner, list):
        return {**value, field: [change(each) if isinstance(each, Mapping) else each for each in inner]}
    return value


def _request(request: Json) -> Json:
    """Return a request whose fields for devices, before v1beta2 its own, are those of `exactly`."""
    devices = {name: value for name, value in request.items() if name not in _OF_REQUEST}
    rest = {name: value for name, value in request.items() if name in _OF_REQUEST}
    return {**rest, "exactly": devices} if devices else rest


def _device(device: Json) -> Json:
    """Return a device without `basic`, whose fields are now its own."""
    basic = device.get("basic")
    rest = {name: value for name, value in device.items() if name != "basic"}
    return {**rest, **basic} if isinstance(basic, Mapping) else device
