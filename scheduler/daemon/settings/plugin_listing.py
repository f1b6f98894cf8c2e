"""The plugins that a configuration can name, as `affinity-scheduler plugins` lists them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from scheduler.daemon.settings.plugin_table import IN_TREE_BY_NAME
from scheduler.daemon.settings.writing import args_document
from scheduler.engine.framework.out_of_tree import OutOfTreePlugin
from scheduler.engine.plugins.registry import IN_TREE
from scheduler.version import product_version


def plugin_rows(out_of_tree: Iterable[OutOfTreePlugin]) -> list[dict[str, Any]]:
    """Return a row for each plugin that is built in, and for these of the user's."""
    version = product_version()
    built_in = (
        _row(name, version, "built in", IN_TREE[name].extension_points, known.weight, _own_defaults(name))
        for name, known in IN_TREE_BY_NAME.items()
        if name in IN_TREE
    )
    guests = (
        _row(
            each.name, each.version, each.source, each.points, each.default_weight, _defaults(each.args_type)
        )
        for each in out_of_tree
    )
    return [*built_in, *guests]


def _row(
    name: str, version: str, source: str, points: Iterable[str], weight: int, arguments: Mapping[str, object]
) -> dict[str, Any]:
    return {
        "name": name,
        "version": version,
        "from": source,
        "points": list(points),
        "weight": weight,
        "arguments": arguments,
    }


def _own_defaults(name: str) -> Mapping[str, object]:
    kind = IN_TREE[name].args_type
    return {} if kind is None else args_document(kind())


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
