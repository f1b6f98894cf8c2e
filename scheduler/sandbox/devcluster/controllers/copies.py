"""Changed copies of stored objects; the stored ones are shared and never changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.sandbox.devcluster.kinds import JsonObject


def replaced(obj: Mapping[str, Any], path: Sequence[str], value: object) -> JsonObject:
    """Return a copy of `obj` with `value` at `path`; the other parts are shared."""
    head, *rest = path
    return {**obj, head: replaced(obj.get(head) or {}, rest, value) if rest else value}


def without(mapping: Mapping[str, Any] | None, *keys: str) -> JsonObject:
    """Return a copy of `mapping` that lacks `keys`."""
    return {key: value for key, value in (mapping or {}).items() if key not in keys}
