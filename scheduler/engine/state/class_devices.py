"""
How many devices of a class each node reaches, and how many of them are allocated: an extended resource in scores.

Generations and completeness of pools do not matter. A node for which a selector fails has no devices.

Source: plugins/noderesources/resource_allocation.go, calculateDRAResourceTotals (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from scheduler.engine.cel import CompileError, EvaluationError, compile_selector
from scheduler.engine.model.devices import Device, DeviceClass, ResourceSlice, variable_of
from scheduler.engine.state.arrays import Amounts, Mask
from scheduler.engine.state.devices import Devices
from scheduler.engine.state.node_masks import NodeMasks
from scheduler.engine.state.node_table import NodeTable


def class_devices(
    device_class: DeviceClass, devices: Devices, nodes: NodeTable, masks: NodeMasks
) -> tuple[Amounts, Amounts]:
    """Return how many devices of the class each row reaches, and how many are allocated. O(all devices)."""
    n_rows = nodes.n_rows
    total, allocated = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)
    fails = np.zeros(n_rows, np.bool_)
    matches = _matcher(device_class)
    for each in devices.slices():
        rows = None if each.per_device_node_selection else _rows_of(each, nodes, masks)
        for device in each.devices:
            reached = _rows_of(device, nodes, masks) if each.per_device_node_selection else rows
            if reached is None:
                fails[:] = True
                continue
            if not reached.any():
                continue
            answer = matches(each.driver, device)
            if answer is None:
                fails |= reached
            elif answer:
                total += reached
                allocated += reached & devices.allocated.has(each.device_id(device))
    total[fails] = allocated[fails] = 0
    return total, allocated


def _matcher(device_class: DeviceClass) -> Callable[[str, Device], bool | None]:
    """Return a function that says whether a device is of the class, None if a selector fails."""
    selectors = [compile_selector(each) for each in device_class.selectors if each is not None]

    def matches(driver: str, device: Device) -> bool | None:
        # Upstream evaluates these expressions without the field that says whether claims may share the device.
        variable = variable_of(driver, replace(device, allow_multiple_allocations=False))
        for selector in selectors:
            answer = None if isinstance(selector, CompileError) else selector.evaluate(variable)[0]
            if answer is None or isinstance(answer, EvaluationError):
                return None
            if not answer:
                return False
        return True

    return matches


def _rows_of(each: ResourceSlice | Device, nodes: NodeTable, masks: NodeMasks) -> Mask | None:
    """Return the rows that reach the devices of a slice, or a device; None if its selector does not parse."""
    # Quirk: a slice that selects no nodes in any way counts on all.
    is_open = isinstance(each, ResourceSlice) and not each.node_name and each.node_selector is None
    if each.all_nodes or is_open:
        return nodes.alive
    rows = np.zeros(nodes.n_rows, np.bool_)
    row = nodes.row_by_name.get(each.node_name) if each.node_name else None
    if row is not None:
        rows[row] = True
    if each.node_selector is None:
        return rows
    return None if each.node_selector.problem is not None else rows | masks.matching(each.node_selector.rule)
