"""Stored objects are shared and never changed: an edit is a copy along one path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.devcluster.kinds import JsonObject


def replaced(obj: Mapping[str, Any], path: Sequence[str], value: object) -> JsonObject:
    """A copy of `obj` with `value` at `path`; what lies beside the path is shared. Cost: O(path's width)."""
    head, *rest = path
    return {**obj, head: replaced(obj.get(head) or {}, rest, value) if rest else value}


def without(mapping: Mapping[str, Any] | None, *keys: str) -> JsonObject:
    """A copy of `mapping` that lacks `keys`."""
    return {key: value for key, value in (mapping or {}).items() if key not in keys}
