"""The arguments of DynamicResources, complete."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DynamicResourcesArgs:
    """
    How long a node's search for devices, and the binding conditions of a pod's devices, may take.

    The search is bounded in steps for all nodes together, so that its timeout is checked and has no
    effect; the log says so.

    Attributes:
        preempt_for_devices: whether pods are evicted for their devices; upstream's never are.
    """

    filter_timeout_s: float = 10.0
    binding_timeout_s: float = 600.0
    preempt_for_devices: bool = True
