"""Claims made to hold a scheduler up."""

from __future__ import annotations

from tests.support.build import Json
from tests.support.device_documents import device_slice

#: Devices of a node; no two are equal.
N_DEVICES = 8
_NUMBERS = ", ".join(map(str, range(10)))


def distinct_devices(node: str, number: int) -> Json:
    """Return the slice of the node of this number, whose devices differ from all others."""
    published = device_slice(node, N_DEVICES)
    for index, device in enumerate(published["spec"]["devices"]):
        device["attributes"] = {"index": {"int": number * N_DEVICES + index}}
    return published


def costly(depth: int, nonce: int) -> str:
    """Return an expression of nested comprehensions, true for every device; each depth costs ten times as much."""
    expression = f"{' + '.join(f'x{each}' for each in range(depth))} >= -{nonce}"
    for each in range(depth):
        expression = f"[{_NUMBERS}].all(x{each}, {expression})"
    return expression


def _request(name: str, *expressions: str, count: int = 1) -> Json:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": selectors,
    }
    return {"name": name, "exactly": exactly}


def _endless(*expressions: str) -> Json:
    """Return a claim of all devices but one and a pair of equal ones, which do not exist."""
    attribute = "gpu.example.com/index"
    return {
        "requests": [_request("r", *expressions, count=N_DEVICES - 2), _request("s", count=2)],
        "constraints": [
            {"distinctAttribute": attribute},
            {"matchAttribute": attribute, "requests": ["s"]},
        ],
    }


def hostile_claims(nonce: int) -> dict[str, Json]:
    """Return what claims ask for, by what is wrong with it. Another nonce asks other questions."""
    cheap = f'device.attributes["gpu.example.com"].index >= -{nonce}'
    return {
        "a search for ever": _endless(cheap),
        "nested comprehensions": {"requests": [_request("r", costly(4, nonce))]},
        "comprehensions beyond the limit": {"requests": [_request("r", costly(7, nonce))]},
        "many costly selectors": {
            "requests": [_request(f"r{each}", costly(3, nonce + each)) for each in range(20)]
        },
        "a search for ever over costly selectors": _endless(costly(4, nonce)),
    }
