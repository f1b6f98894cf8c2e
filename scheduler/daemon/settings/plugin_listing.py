"""The plugins that a configuration can name, as `affinity-scheduler plugins` lists them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from scheduler.daemon.settings.plugin_table import IN_TREE_BY_NAME
from scheduler.daemon.settings.writing import args_document
from scheduler.engine.framework.out_of_tree import OutOfTreePlugin
from scheduler.engine.model.wire import Wire
from scheduler.engine.plugins.registry import IN_TREE
from scheduler.version import product_version


def plugin_rows(out_of_tree: Iterable[OutOfTreePlugin]) -> list[dict[str, Any]]:
    """Return a row for each plugin that is built in, and for these of the user's."""
    version = product_version()
    built_in = (
        (name, version, "built in", one.extension_points, IN_TREE_BY_NAME[name].default_weight, one.args_type)
        for name, one in IN_TREE.items()
    )
    guests = (
        (each.name, each.version, each.source, each.points, each.default_weight, each.args_type)
        for each in out_of_tree
    )
    return [
        {
            "name": name,
            "version": version,
            "from": source,
            "points": list(points),
            "weight": weight,
            "arguments": _defaults(args_type),
        }
        for name, version, source, points, weight, args_type in (*built_in, *guests)
    ]


def _defaults(kind: type[Any] | None) -> Mapping[str, object]:
    """Return the arguments with their defaults; those without one as their type in angle brackets."""
    if kind is None:
        return {}
    if issubclass(kind, Wire):
        return args_document(kind())
    return {
        field.encode_name: f"<{getattr(field.type, '__name__', field.type)}>"
        if field.required
        else msgspec.to_builtins(
            field.default if field.default is not msgspec.NODEFAULT else field.default_factory(),
            enc_hook=repr,
        )
        for field in msgspec.structs.fields(kind)
    }
