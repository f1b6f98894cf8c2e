"""
Resolves which plugins run where: reads a profile's `plugins`, merges it into the defaults and expands multiPoint.

Source: pkg/scheduler/apis/config/v1/default_plugins.go (mergePluginSet) and
pkg/scheduler/framework/runtime/framework.go (updatePluginList, expandMultiPointPlugins, getScoreWeights), kubernetes
1.36. Not checked here: whether all weights together fit 64 bits, since they are 32-bit values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec

from scheduler.daemon.settings.plugin_table import (
    DEFAULT_PLUGINS,
    GROUP_POINTS,
    IN_TREE_BY_NAME,
    MULTI_POINT,
    POINTS,
    REMOVED_PLUGINS,
    InTreePlugin,
    Plugins,
    SetFields,
    type_name,
)
from scheduler.daemon.settings.problems import Problems, shown
from scheduler.engine.framework.out_of_tree import OutOfTreePlugin

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """An `enabled` item; `weight` 0 means unset, as upstream. `path` is '' for upstream's defaults."""

    name: str
    weight: int = 0
    path: str = ""


@dataclass(frozen=True, slots=True)
class PluginSet:
    """The plugins that a file enables and disables at one extension point, or the result of a merge."""

    enabled: tuple[PluginEntry, ...] = ()
    disabled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginLists:
    """Reads the lists of a profile. `known`: every plugin that it can name."""

    known: Mapping[str, InTreePlugin | OutOfTreePlugin]
    problems: Problems
    notes: list[str]

    def sets(self, given: Plugins, path: str) -> dict[str, PluginSet]:
        """
        Return the plugin set of every extension point and of multiPoint, empty if the file does not mention it.

        Entries that cannot run at their point are recorded as problems and left out. Unknown names under `disabled`,
        which change nothing, are noted.
        """
        sets = {field.encode_name: getattr(given, field.name) for field in msgspec.structs.fields(Plugins)}
        return {point: self._set(point, fields, f"{path}.{point}") for point, fields in sets.items()}

    def _set(self, point: str, given: SetFields, path: str) -> PluginSet:
        disabled = [entry.name for entry in given.disabled]
        self.notes.extend(
            f"{path}.disabled[{index}].name: {shown(name)} does not exist, so nothing is disabled"
            for index, name in enumerate(disabled)
            if name not in self.known and name not in REMOVED_PLUGINS | {ALL}
        )
        usable: list[PluginEntry] = []
        for index, fields in enumerate(given.enabled):
            entry = PluginEntry(fields.name, fields.weight, f"{path}.enabled[{index}]")
            if not self._can_run(point, entry):
                continue
            if point != MULTI_POINT and entry.name in {each.name for each in usable}:
                self._report_duplicate(entry, point)
            else:
                usable.append(entry)
        return PluginSet(tuple(usable), tuple(disabled))

    def _can_run(self, point: str, entry: PluginEntry) -> bool:
        path, name, problems = f"{entry.path}.name", entry.name, self.problems
        plugin = self.known.get(name)
        if name in REMOVED_PLUGINS:
            report_removed(entry.path, name, problems)
        elif plugin is None:
            kind = "plugin" if point == MULTI_POINT else type_name(point)
            problems.add(path, f"{kind} {shown(name)} does not exist")
        elif point != MULTI_POINT and point not in plugin.points:
            problems.add(path, f"plugin {shown(name)} does not extend {type_name(point)} plugin")
        elif point in GROUP_POINTS or set(plugin.points) <= GROUP_POINTS:
            problems.found(
                path, shown(name), "none (groups are placed by a search that calls no plugin there)"
            )
        else:
            return True
        return False

    def _report_duplicate(self, entry: PluginEntry, point: str) -> None:
        text = f'plugin {shown(entry.name)} already registered as "{type_name(point)}"'
        self.problems.add(f"{entry.path}.name", text)

    def resolve(
        self, sets: Mapping[str, PluginSet]
    ) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, int]]:
        """Return the plugins of every point in running order under the file's `sets`, and the weights of scores."""
        multi = _merged(sets[MULTI_POINT])
        duplicates: set[str] = set()
        names_by_point = {point: self._expanded(point, sets[point], multi, duplicates) for point in POINTS}
        weight_by_name: dict[str, int] = {}
        for entry in (*sets["score"].enabled, *multi):
            if entry.name in names_by_point["score"] and entry.name not in weight_by_name:
                own = 0 if entry.name in IN_TREE_BY_NAME else self.known[entry.name].default_weight
                weight_by_name[entry.name] = entry.weight or own or 1
        return MappingProxyType(names_by_point), MappingProxyType(weight_by_name)

    def _expanded(
        self, point: str, own: PluginSet, multi: tuple[PluginEntry, ...], duplicates: set[str]
    ) -> tuple[str, ...]:
        own_names = [entry.name for entry in own.enabled]
        if ALL in own.disabled:
            return tuple(own_names)
        overridden: set[str] = set()
        from_multi: list[str] = []
        for entry in multi:
            name = entry.name
            if point not in self.known[name].points or name in own.disabled:
                continue
            if name in own_names:
                overridden.add(name)
            elif name not in from_multi:
                from_multi.append(name)
            elif entry.path not in duplicates:
                duplicates.add(entry.path)
                self._report_duplicate(entry, point)
        first = [name for name in own_names if name in overridden]
        last = [name for name in own_names if name not in overridden]
        return (*first, *from_multi, *last)


def _merged(custom: PluginSet) -> tuple[PluginEntry, ...]:
    """
    Return the defaults without the disabled plugins, then the enabled ones; an enabled default keeps its place.

    A plugin that is both enabled and disabled is enabled. If a default is enabled twice, the last entry takes its
    place and the others are appended.
    """
    last_by_name = {entry.name: entry for entry in custom.enabled}
    kept = [
        last_by_name.get(name, PluginEntry(name, IN_TREE_BY_NAME[name].default_weight))
        for name in DEFAULT_PLUGINS
        if not {ALL, name} & set(custom.disabled)
    ]
    return (*kept, *(entry for entry in custom.enabled if entry not in kept))


def report_removed(path: str, name: str, problems: Problems) -> None:
    """Record that the plugin `name`, used at `path`, was removed from Kubernetes."""
    # Upstream prints "v1" because it uses core's group version by mistake.
    problems.invalid(
        path, name, f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{API_VERSION}")'
    )
