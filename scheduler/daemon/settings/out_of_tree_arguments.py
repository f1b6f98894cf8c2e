"""
Reads the arguments of out-of-tree plugins into their plugin types, and reports every field that is wrong.

An out-of-tree plugin's arguments are a `msgspec.Struct`, whose fields and defaults are what a configuration may say.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from scheduler.daemon.settings.decoding import ObjectReader
from scheduler.daemon.settings.out_of_tree_files import fault_when_made
from scheduler.daemon.settings.problems import described
from scheduler.engine.framework.out_of_tree import OutOfTreePlugin
from scheduler.engine.framework.out_of_tree_results import described as described_error


def read_out_of_tree_args(reader: ObjectReader, plugin: OutOfTreePlugin, kind: type[Any]) -> object:
    """
    Return the plugin's arguments of the type `kind`, complete; None after a problem.

    `apiVersion` and `kind` are allowed, as for any plugin, and not read.
    """
    n_problems, values = len(reader.problems.lines), {}
    with reader:
        for name in ("apiVersion", "kind"):
            reader.raw(name)
        for field in msgspec.structs.fields(kind):
            value = reader.raw(field.encode_name)
            if value is not None:
                values[field.encode_name] = value
                _check(reader, field, value)
            elif field.required:
                reader.problems.required(reader.at(field.encode_name), f"{plugin.name} has no default for it")
    if len(reader.problems.lines) > n_problems:
        return None
    try:
        args: object = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:  # the struct's plugin check, of several fields
        reader.problems.add(reader.path, str(error))
        return None
    except Exception as error:  # noqa: BLE001 - the same check, which may raise anything
        reader.problems.add(reader.path, described_error(error, kind))
        return None
    for fault in fault_when_made(plugin.plugin_class, args):
        reader.problems.add(reader.path, f"plugin {plugin.name} {fault}")
    return args


def add_default_args(
    reader: ObjectReader, args_by_plugin: Mapping[str, object], out_of_tree: Iterable[OutOfTreePlugin]
) -> Mapping[str, object]:
    """Return the arguments with those of the out_of_tree that the profile runs and configures nowhere."""
    complete = dict(args_by_plugin)
    for plugin in out_of_tree:
        if plugin.args_type is None or plugin.name in complete:
            continue
        missing = [one.encode_name for one in msgspec.structs.fields(plugin.args_type) if one.required]
        if missing:
            detail = f"plugin {plugin.name} has no default for {', '.join(missing)}"
            reader.problems.required(reader.at("pluginConfig"), detail)
        else:
            complete[plugin.name] = plugin.args_type()
    return MappingProxyType(complete)


def _check(reader: ObjectReader, field: msgspec.structs.FieldInfo, value: object) -> None:
    """Record a value that the field cannot have."""
    try:
        msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        text, _, inner = str(error).partition(" - at `$")
        path = reader.at(field.encode_name) + inner.rstrip("`")
        expected = text.partition(", got ")[0].removeprefix("Expected ").replace("`", "")
        found = (
            described(value) if not inner else text.partition(", got ")[2].replace("`", "") or "another value"
        )
        reader.problems.found(path, found, expected)
