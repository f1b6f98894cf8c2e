"""Expressions with what Kubernetes 1.36 made of them, and the devices that they were asked about."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.engine.cel import (
    AttributeValue,
    CompileError,
    DeviceFields,
    EvaluationError,
    VersionText,
    compile_selector,
)
from scheduler.engine.syntax.quantity import parse_quantity

DATA = Path(__file__).parents[2] / "data"


@dataclass(frozen=True)
class Recording:
    devices: list[DeviceFields]
    lines: list[dict[str, Any]]


def read_recording(name: str) -> Recording:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        first, *lines = (json.loads(line) for line in file)
    return Recording([device_fields(**entry) for entry in first["devices"]], lines)


def device_fields(driver: str, device: dict[str, Any]) -> DeviceFields:
    attributes = {name: _attribute(value) for name, value in device.get("attributes", {}).items()}
    capacity = {name: parse_quantity(value["value"]) for name, value in device.get("capacity", {}).items()}
    return DeviceFields(driver, device.get("allowMultipleAllocations", False), attributes, capacity)


def _attribute(value: dict[str, Any]) -> AttributeValue:
    if "version" in value:
        return VersionText(value["version"])
    return next((value[kind] for kind in ("string", "int", "bool") if kind in value), None)


def evaluated(expression: str, device: DeviceFields) -> bool | EvaluationError | CompileError:
    """Return what the expression says of the device, or why it is no selector."""
    selector = compile_selector(expression)
    return selector if isinstance(selector, CompileError) else selector.evaluate(device)[0]


def answer(expression: str, devices: list[DeviceFields]) -> dict[str, Any]:
    """Return the answer to an expression in the form of the recordings."""
    results = [evaluated(expression, device) for device in devices]
    if isinstance(results[0], CompileError):
        return {"expression": expression, "compile": results[0].text}
    texts = [result.text if isinstance(result, EvaluationError) else result for result in results]
    return {"expression": expression, "results": texts}
