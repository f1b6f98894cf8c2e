"""The message of a pod that fits nowhere, in its two parts."""

import re
from typing import Any

_COMPILE_ERROR = re.compile("CEL compile error: .*", re.S)
_PREEMPTION = " preemption: "
#: What DynamicResources says before, of a pod without claims.
NO_CLAIMS = "no new claims to deallocate, "


def refusals(message: str) -> str:
    """Return the part on the nodes, without the parts of PostFilter."""
    return message.replace(NO_CLAIMS, "").partition(_PREEMPTION)[0]


def not_helpful(n_nodes: int) -> str:
    """Return the part on preemption if no node would take the pod, whichever pods left."""
    return _none(n_nodes, "Preemption is not helpful for scheduling")


def no_victims(n_nodes: int) -> str:
    """Return the part on preemption if no pod has a lower priority."""
    return _none(n_nodes, "No preemption victims found for incoming pod")


def without_compile_errors(value: Any) -> Any:
    """Return the texts of a JSON value without why an expression is no selector, which is said in words of our own."""
    if isinstance(value, str):
        return _COMPILE_ERROR.sub("CEL compile error", value)
    if isinstance(value, dict):
        return {key: without_compile_errors(inner) for key, inner in value.items()}
    return [without_compile_errors(inner) for inner in value] if isinstance(value, list) else value


def _none(n_nodes: int, why: str) -> str:
    return f"{NO_CLAIMS}preemption: 0/{n_nodes} nodes are available: {n_nodes} {why}."
