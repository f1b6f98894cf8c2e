"""
Reads `profiles`: names, percentages, plugins and their arguments; checks the rules between them.

Source: pkg/scheduler/apis/config/validation/validation.go (validateKubeSchedulerProfile, validatePluginConfig,
validateCommonQueueSort) and framework/runtime/framework.go (NewFramework), kubernetes 1.36.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from scheduler.daemon.settings.decoding import ObjectReader
from scheduler.daemon.settings.out_of_tree_arguments import add_default_args, read_out_of_tree_args
from scheduler.daemon.settings.plugin_arguments import (
    DEFAULT_ARGS,
    GATED_ARGS,
    READ_ARGS,
    note_without_effect,
)
from scheduler.daemon.settings.plugin_lists import (
    API_VERSION,
    PluginLists,
    PluginSet,
    read_plugin_sets,
    report_removed,
    resolve,
)
from scheduler.daemon.settings.plugin_table import (
    DEFAULT_PLUGINS,
    IN_TREE_BY_NAME,
    POINTS,
    REMOVED_PLUGINS,
    InTreePlugin,
    known_plugins,
)
from scheduler.daemon.settings.problems import Problems, shown
from scheduler.daemon.settings.resolved import ProfileSettings
from scheduler.engine.framework.out_of_tree import OutOfTreePlugin
from scheduler.engine.model.pods import DEFAULT_SCHEDULER_NAME
from scheduler.engine.model.semantics import Semantics
from scheduler.engine.plugins.inter_pod_affinity.plugin import NAME as INTER_POD_AFFINITY
from scheduler.engine.plugins.inter_pod_affinity.plugin import InterPodAffinityArgs
from scheduler.engine.plugins.registry import NO_OUT_OF_TREE
from scheduler.engine.syntax.selectors import Selector


@dataclass(frozen=True, slots=True)
class _Draft:
    path: str
    settings: ProfileSettings
    queue_sort: PluginSet


def read_profiles(
    reader: ObjectReader,
    semantics: Semantics,
    notes: list[str],
    out_of_tree: Mapping[str, OutOfTreePlugin] = NO_OUT_OF_TREE,
) -> tuple[ProfileSettings, ...]:
    """
    Return every profile, complete; one with upstream's defaults if the file has none.

    Fields without effect are added to `notes`. A single profile without a name is `default-scheduler`.
    """
    items = reader.objects("profiles") or [ObjectReader({}, f"{reader.at('profiles')}[0]", reader.problems)]
    drafts = [_read_profile(item, semantics, notes, out_of_tree, only=len(items) == 1) for item in items]
    first_path_by_name: dict[str, str] = {}
    for draft in drafts:
        path, name = f"{draft.path}.schedulerName", draft.settings.scheduler_name
        if name in first_path_by_name:
            reader.problems.duplicate(path, first_path_by_name[name])
        elif name:
            first_path_by_name[name] = path
    _check_common_queue_sort(drafts, reader.problems)
    _check_common_annotation_namespaces(drafts, reader.problems)
    return tuple(draft.settings for draft in drafts)


def _read_profile(
    reader: ObjectReader,
    semantics: Semantics,
    notes: list[str],
    out_of_tree: Mapping[str, OutOfTreePlugin],
    *,
    only: bool,
) -> _Draft:
    problems, known = reader.problems, known_plugins(out_of_tree)
    with reader:
        given = reader.text("schedulerName")
        name = DEFAULT_SCHEDULER_NAME if given is None and only else given or ""
        if not name:
            problems.required(reader.at("schedulerName"))
        percentage = read_percentage(reader)
        sets = read_plugin_sets(reader.child("plugins"), known, notes)
        args = _read_plugin_config(reader, semantics, out_of_tree, notes)
    lists = resolve(sets, known, problems)
    _check_lists(reader.at("plugins"), name, lists, problems)
    used = {plugin for names in lists.names_by_point.values() for plugin in names}
    args = add_default_args(
        reader, args, [out_of_tree[plugin] for plugin in sorted(used & out_of_tree.keys())]
    )
    return _Draft(reader.path, _profile(name, percentage, lists, known, args), sets["queueSort"])


def _profile(
    name: str,
    percentage: int | None,
    lists: PluginLists,
    known: Mapping[str, InTreePlugin],
    args: Mapping[str, object],
) -> ProfileSettings:
    used = {plugin for names in lists.names_by_point.values() for plugin in names}
    built = {plugin for plugin in used if not known[plugin].missing}
    return ProfileSettings(
        scheduler_name=name,
        plugins_by_point=MappingProxyType(
            {point: tuple(n for n in lists.names_by_point[point] if n in built) for point in POINTS}
        ),
        weight_by_plugin=MappingProxyType({n: w for n, w in lists.weight_by_name.items() if n in built}),
        args_by_plugin=args,
        percentage_of_nodes_to_score=percentage,
        not_built=tuple(plugin.name for plugin in DEFAULT_PLUGINS if plugin.name in used - built),
    )


def read_percentage(reader: ObjectReader) -> int | None:
    """Return percentageOfNodesToScore of a profile or of the whole configuration, None if absent."""
    percentage = reader.integer("percentageOfNodesToScore")
    if percentage is not None and not 0 <= percentage <= 100:
        path = reader.at("percentageOfNodesToScore")
        reader.problems.invalid(path, percentage, "not in valid range [0-100]")
    return percentage


def _read_plugin_config(
    reader: ObjectReader, semantics: Semantics, out_of_tree: Mapping[str, OutOfTreePlugin], notes: list[str]
) -> Mapping[str, object]:
    args_by_plugin = dict(DEFAULT_ARGS)
    seen: set[str] = set()
    for item in reader.objects("pluginConfig"):
        with item:
            name = item.text("name") or ""
            raw = item.raw("args")
        if name in seen:
            reader.problems.duplicate(item.path, name)
            continue
        seen.add(name)
        if name in REMOVED_PLUGINS:
            report_removed(item.path, name, reader.problems)
        elif name in out_of_tree and (kind := out_of_tree[name].args_type) is not None:
            args_by_plugin[name] = read_out_of_tree_args(item.child("args"), out_of_tree[name], kind)
        elif name not in IN_TREE_BY_NAME and name not in out_of_tree:
            reader.problems.add(f"{item.path}.name", f"plugin {shown(name)} does not exist")
        elif name in READ_ARGS:
            _read_args(name, item.child("args"), semantics, args_by_plugin)
            if note := note_without_effect(args_by_plugin[name]):
                notes.append(f"{item.path}.args.{note}")
        elif raw is not None:
            notes.append(f"{item.path}.args: {name} takes no arguments, so these have no effect")
    return MappingProxyType(args_by_plugin)


def _read_args(
    name: str, reader: ObjectReader, semantics: Semantics, args_by_plugin: dict[str, object]
) -> None:
    expected = f"{name}Args"
    version = reader.text("apiVersion") or API_VERSION
    kind = reader.text("kind") or expected
    if (version, kind) != (API_VERSION, expected):
        reader.problems.invalid(reader.path, f"{version}, Kind={kind}", "has to match plugin args")
        return
    with reader:
        args_by_plugin[name] = READ_ARGS[name](reader)
        field, gate = GATED_ARGS.get(name, ("", None))
        if gate is not None and not semantics.enabled(gate) and (value := reader.raw(field)) is not None:
            detail = f"unexpected field `{field}`, remove it or turn on the feature gate {gate}"
            reader.problems.invalid(reader.at(field), value, detail)


def _check_lists(path: str, scheduler_name: str, lists: PluginLists, problems: Problems) -> None:
    n_sorting = len(lists.names_by_point["queueSort"])
    if n_sorting != 1:
        problems.add(
            f"{path}.queueSort",
            "only one queue sort plugin required for profile with scheduler name "
            f"{shown(scheduler_name)}, but got {n_sorting}",
        )
    if not lists.names_by_point["bind"]:
        problems.add(
            f"{path}.bind",
            f"at least one bind plugin is needed for profile with scheduler name {shown(scheduler_name)}",
        )


def _check_common_queue_sort(drafts: list[_Draft], problems: Problems) -> None:
    common = _queue_sort_as_written(drafts[0])
    if len(common["enabled"]) > 1:
        path = f"{drafts[0].path}.plugins.queueSort.Enabled"
        problems.invalid(path, len(common["enabled"]), "only one queue sort plugin can be enabled")
    for draft in drafts[1:]:
        own = _queue_sort_as_written(draft)
        if own != common:
            problems.invalid(f"{draft.path}.plugins.queueSort", own, "must be the same for all profiles")


def _check_common_annotation_namespaces(drafts: list[_Draft], problems: Problems) -> None:
    """Report profiles that differ: whether the annotation of a running pod counts depends on no profile."""
    common = _annotation_namespaces(drafts[0])
    for draft in drafts[1:]:
        own = _annotation_namespaces(draft)
        if own != common:
            path = f"{draft.path}.pluginConfig[InterPodAffinity].args.annotationNamespaces"
            problems.invalid(path, list(own[0]), "must be the same for all profiles")


def _annotation_namespaces(draft: _Draft) -> tuple[tuple[str, ...], Selector]:
    given = draft.settings.args_by_plugin.get(INTER_POD_AFFINITY)
    args = given if isinstance(given, InterPodAffinityArgs) else InterPodAffinityArgs()
    return args.annotation_namespaces, args.annotation_namespace_selector


def _queue_sort_as_written(draft: _Draft) -> dict[str, list[str]]:
    enabled = [entry.name for entry in draft.queue_sort.enabled]
    return {"enabled": enabled, "disabled": list(draft.queue_sort.disabled)}
