"""
Writes Settings as a configuration file that relies on no default, and lists the plugins that a file can name.

Plugins are listed by extension point with every default disabled, so that a reader sees what runs where and in which
order without knowing how multiPoint expands.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from scheduler.daemon.settings.documents import write_document
from scheduler.daemon.settings.loading import KIND
from scheduler.daemon.settings.plugin_lists import ALL, API_VERSION
from scheduler.daemon.settings.plugin_table import IN_TREE_BY_NAME, MULTI_POINT
from scheduler.daemon.settings.problems import shown
from scheduler.daemon.settings.resolved import ProfileSettings, Settings
from scheduler.engine.framework.out_of_tree import OutOfTreePlugin
from scheduler.engine.model.gated_fields import reason_without_effect
from scheduler.engine.model.wire import Duration, Wire
from scheduler.engine.plugins.registry import IN_TREE, gated_off
from scheduler.engine.syntax.durations import format_duration
from scheduler.version import product_version

_Fields = dict[str, object]


def resolved_yaml(settings: Settings) -> str:
    """
    Return the completed configuration as YAML that loads to equal settings under the same feature gates.

    Comments at its top have what no field holds: notes, feature gates.
    """
    return "".join(f"# {line}\n" for line in _remarks(settings)) + write_document(resolved_document(settings))


def as_json(settings: Settings) -> str:
    """Return the body of /configz, a map of objects with kinds: upstream's `componentconfig`, and ours."""
    own = {
        "apiVersion": "affinity-scheduler.io/v1",
        "kind": "AffinitySchedulerStatus",
        "emulatedVersion": str(settings.semantics.version),
        "featureGates": _gates(settings),
        "notes": list(settings.notes),
    }
    return json.dumps({"componentconfig": resolved_document(settings), "affinity-scheduler": own})


def resolved_document(settings: Settings) -> _Fields:
    """Return the completed configuration as a KubeSchedulerConfiguration with every field present."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        **_fields(settings.configuration),
        "profiles": [_profile(profile) for profile in settings.profiles],
    }


def _remarks(settings: Settings) -> list[str]:
    off = [
        f"profile {shown(profile.scheduler_name)}: {reason_without_effect(name, gate, settings.semantics)}"
        for profile in settings.profiles
        for name, gate in gated_off(settings.semantics).items()
        if any(name in names for names in profile.plugins_by_point.values())
    ]
    gates = ", ".join(f"{gate}={shown(value)}" for gate, value in _gates(settings).items())
    return [
        *(f"note: {note}" for note in settings.notes),
        *off,
        f"emulatedVersion: {settings.semantics.version}",
        f"featureGates: {gates}",
    ]


def _gates(settings: Settings) -> dict[str, bool]:
    """Return the gates that the version has and that have an effect here."""
    return {gate.value: settings.semantics.enabled(gate) for gate in settings.semantics.stages}


def _profile(profile: ProfileSettings) -> _Fields:
    percentage = profile.percentage_of_nodes_to_score
    plugins: _Fields = {MULTI_POINT: {"disabled": [{"name": ALL}]}}
    for point, names in profile.plugins_by_point.items():
        if names:
            weight_by_name = profile.weight_by_plugin if point == "score" else {}
            plugins[point] = {
                "enabled": [
                    {"name": name, **({"weight": weight_by_name[name]} if name in weight_by_name else {})}
                    for name in names
                ]
            }
    return {
        "schedulerName": profile.scheduler_name,
        **({} if percentage is None else {"percentageOfNodesToScore": percentage}),
        "plugins": plugins,
        "pluginConfig": [
            {"name": name, "args": {"apiVersion": API_VERSION, "kind": f"{name}Args", **args_document(args)}}
            for name, args in profile.args_by_plugin.items()
        ],
    }


def args_document(args: object) -> _Fields:
    """Return a plugin's arguments as a configuration has them."""
    return _fields(args) if isinstance(args, Wire) else dict(msgspec.to_builtins(args))


def _fields(values: msgspec.Struct) -> _Fields:
    """Return the fields as a file has them, without those that are None or empty by default."""
    document: _Fields = {}
    for field in msgspec.structs.fields(type(values)):
        value = getattr(values, field.name)
        if not (value in (None, ()) and value == field.default):
            document[field.encode_name] = format_duration(value) if field.type == Duration else _value(value)
    return document


def _value(value: object) -> object:
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return _fields(value) if isinstance(value, Wire) else value


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
