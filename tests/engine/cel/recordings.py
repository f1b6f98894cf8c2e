"""Expressions with what Kubernetes 1.36 made of them, and the devices that they were asked about."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.engine.cel import CompileError, EvaluationError, compile_selector
from scheduler.engine.model.devices import Device, variable_of
from scheduler.engine.model.json_fields import Reader

DATA = Path(__file__).parents[2] / "data"
_DEVICES = Reader(Device)


@dataclass(frozen=True)
class Recording:
    devices: list[Any]
    lines: list[dict[str, Any]]


def read_recording(name: str) -> Recording:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        first, *lines = (json.loads(line) for line in file)
    return Recording([device_value(**entry) for entry in first["devices"]], lines)


def device_value(driver: str, device: dict[str, Any]) -> Any:
    """Return a device of a slice as expressions see it, or why they cannot."""
    return variable_of(driver, _DEVICES.decode("device", json.dumps(device).encode()))


def evaluated(expression: str, device: Any) -> bool | EvaluationError | CompileError:
    """Return what the expression says of the device, or why it is no selector."""
    selector = compile_selector(expression)
    return selector if isinstance(selector, CompileError) else selector.evaluate(device)[0]


def answer(expression: str, devices: list[Any]) -> dict[str, Any]:
    """Return the answer to an expression in the form of the recordings."""
    results = [evaluated(expression, device) for device in devices]
    if isinstance(results[0], CompileError):
        return {"expression": expression, "compile": results[0].text}
    texts = [result.text if isinstance(result, EvaluationError) else result for result in results]
    return {"expression": expression, "results": texts}
