"""
CEL, the language in which DRA selects devices, with Kubernetes' libraries and upstream's error texts.

The room is pure and imports `syntax` alone.
"""

from scheduler.cel.device import AttributeValue, DeviceFields, EvaluationError, Version
from scheduler.cel.selector import CompileError, Selector, compile_selector

__all__ = [
    "AttributeValue",
    "CompileError",
    "DeviceFields",
    "EvaluationError",
    "Selector",
    "Version",
    "compile_selector",
]
