"""A plugin alone, as a profile would have it."""

from __future__ import annotations

from typing import Any

from scheduler.engine.framework.interface import PluginContext
from scheduler.engine.plugins.registry import IN_TREE


def plugin_named(name: str, args: object | None = None) -> Any:
    """Return a plugin of the registry, with its default arguments unless others are given."""
    kind = IN_TREE[name].args_type
    if kind is None:
        return IN_TREE[name]()
    return IN_TREE[name](kind() if args is None else args, PluginContext())
