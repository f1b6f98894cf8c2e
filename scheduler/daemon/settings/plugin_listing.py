"""The plugins that a configuration can name, as `affinity-scheduler plugins` lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from scheduler.daemon.settings.plugin_table import IN_TREE_BY_NAME
from scheduler.daemon.settings.writing import args_document
from scheduler.engine.framework.out_of_tree import OutOfTreePlugin
from scheduler.engine.plugins.registry import IN_TREE
from scheduler.version import product_version


def plugin_rows(out_of_tree: Iterable[OutOfTreePlugin]) -> list[dict[str, Any]]:
    """Return a row for each plugin that is built, and for these of the user's."""
    return [*_in_tree(), *map(_guest, out_of_tree)]


def _in_tree() -> Iterator[dict[str, Any]]:
    version = product_version()
    for name, plugin in IN_TREE_BY_NAME.items():
        if name not in IN_TREE:
            continue
        kind = IN_TREE[name].args_type
        yield {
            "name": name,
            "version": version,
            "from": "built in",
            "points": list(IN_TREE[name].extension_points),
            "weight": plugin.weight,
            "arguments": {} if kind is None else args_document(kind()),
        }


def _guest(plugin: OutOfTreePlugin) -> dict[str, Any]:
    return {
        "name": plugin.name,
        "version": plugin.version,
        "from": plugin.source,
        "points": list(plugin.points),
        "weight": plugin.default_weight,
        "arguments": _defaults(plugin.args_type),
    }


def _defaults(kind: type[Any] | None) -> Mapping[str, object]:
    """Return the arguments with their defaults; those without one as their type in angle brackets."""
    if kind is None:
        return {}
    return {
        field.encode_name: f"<{getattr(field.type, '__name__', field.type)}>"
        if field.required
        else msgspec.to_builtins(
            field.default if field.default is not msgspec.NODEFAULT else field.default_factory(),
            enc_hook=repr,
        )
        for field in msgspec.structs.fields(kind)
    }
