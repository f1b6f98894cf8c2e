"""
Reads the arguments of out-of-tree plugins into their plugin types, and reports every field that is wrong.

An out-of-tree plugin's arguments are a `msgspec.Struct`, whose fields and defaults are what a configuration may say.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from scheduler.daemon.settings.decoding import checked_fields
from scheduler.daemon.settings.out_of_tree_files import fault_when_made
from scheduler.daemon.settings.problems import Problems
from scheduler.engine.framework.out_of_tree import OutOfTreePlugin
from scheduler.engine.framework.out_of_tree_results import described as described_error

#: Fields that the arguments of any plugin may have.
OF_TYPE: Final = ("apiVersion", "kind")


def read_out_of_tree_args(value: object, plugin: OutOfTreePlugin, path: str, problems: Problems) -> object:
    """Return the arguments of a plugin that takes some, complete; None after a problem."""
    kind, n_problems = plugin.args_type, len(problems.lines)
    if kind is None:
        return None
    fields = checked_fields({} if value is None else value, kind, path, problems, also=OF_TYPE)
    if len(problems.lines) > n_problems:
        return None
    try:
        args: object = msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:  # the struct's own check, of several fields
        problems.add(path, str(error))
        return None
    except Exception as error:  # noqa: BLE001 - the same check, which may raise anything
        problems.add(path, described_error(error, kind))
        return None
    for fault in fault_when_made(plugin.plugin_class, args):
        problems.add(path, f"plugin {plugin.name} {fault}")
    return args


def add_default_args(
    path: str,
    args_by_plugin: Mapping[str, object],
    out_of_tree: Iterable[OutOfTreePlugin],
    problems: Problems,
) -> Mapping[str, object]:
    """Return the arguments with those of the out_of_tree that the profile runs and configures nowhere."""
    complete = dict(args_by_plugin)
    for plugin in out_of_tree:
        if plugin.args_type is None or plugin.name in complete:
            continue
        missing = [one.encode_name for one in msgspec.structs.fields(plugin.args_type) if one.required]
        if missing:
            problems.required(path, f"plugin {plugin.name} has no default for {', '.join(missing)}")
        else:
            complete[plugin.name] = plugin.args_type()
    return MappingProxyType(complete)
