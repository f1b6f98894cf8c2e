"""
Reads `profiles`: names, percentages, plugins and their arguments; checks the rules between them.

Source: pkg/scheduler/apis/config/validation/validation.go (validateKubeSchedulerProfile, validatePluginConfig,
validateCommonQueueSort) and framework/runtime/framework.go (NewFramework), kubernetes 1.36.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.daemon.settings.plugin_arguments import (
    DEFAULT_ARGS,
    add_default_args,
    note_without_effect,
    read_args,
    read_out_of_tree_args,
)
from scheduler.daemon.settings.plugin_lists import PluginLists, report_removed
from scheduler.daemon.settings.plugin_table import IN_TREE_BY_NAME, REMOVED_PLUGINS, Plugins
from scheduler.daemon.settings.problems import Problems, shown
from scheduler.daemon.settings.resolved import ProfileSettings
from scheduler.engine.framework.out_of_tree import OutOfTreePlugin
from scheduler.engine.model.pods import DEFAULT_SCHEDULER_NAME
from scheduler.engine.model.semantics import Semantics
from scheduler.engine.model.wire import Int32, Wire
from scheduler.engine.plugins.inter_pod_affinity.plugin import NAME as INTER_POD_AFFINITY
from scheduler.engine.plugins.inter_pod_affinity.plugin import AnnotationNamespaces, InterPodAffinityArgs


class PluginConfig(Wire, frozen=True):
    """An item of `pluginConfig`."""

    name: str = ""
    args: object = None


class ProfileFields(Wire, frozen=True):
    """The fields of a profile in a file."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class _Draft:
    path: str
    settings: ProfileSettings
    #: As the file has it.
    queue_sort: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class ProfileReader:
    """Reads profiles, which may run the `out_of_tree` plugins; fields without effect are added to `notes`."""

    semantics: Semantics
    notes: list[str]
    problems: Problems
    out_of_tree: Mapping[str, OutOfTreePlugin]

    def read(self, profiles: Sequence[ProfileFields]) -> tuple[ProfileSettings, ...]:
        """Return every profile, complete; upstream's if none is given. One without a name is `default-scheduler`."""
        given = profiles or [ProfileFields()]
        drafts = [
            self._draft(each, f"profiles[{index}]", only=len(given) == 1) for index, each in enumerate(given)
        ]
        first_path_by_name: dict[str, str] = {}
        for draft in drafts:
            path, name = f"{draft.path}.schedulerName", draft.settings.scheduler_name
            if name in first_path_by_name:
                self.problems.duplicate(path, first_path_by_name[name])
            elif name:
                first_path_by_name[name] = path
        _check_common(drafts, self.problems)
        return tuple(draft.settings for draft in drafts)

    def _draft(self, given: ProfileFields, path: str, *, only: bool) -> _Draft:
        """Return the profile at `path`; `only`: whether there is no other."""
        problems = self.problems.at(path)
        lists = PluginLists({**IN_TREE_BY_NAME, **self.out_of_tree}, self.problems, self.notes)
        name = DEFAULT_SCHEDULER_NAME if given.scheduler_name is None and only else given.scheduler_name or ""
        if not name:
            problems.required("schedulerName")
        check_percentage(given.percentage_of_nodes_to_score, problems)
        sets = lists.sets(given.plugins, f"{path}.plugins")
        own_args = self._args(given.plugin_config, f"{path}.pluginConfig")
        names_by_point, weight_by_name = lists.resolve(sets)
        _check_lists(name, names_by_point, problems.at("plugins"))
        used = {plugin for names in names_by_point.values() for plugin in names}
        running = [self.out_of_tree[plugin] for plugin in sorted(used & self.out_of_tree.keys())]
        args = add_default_args(own_args, running, problems.at("pluginConfig"))
        percentage = given.percentage_of_nodes_to_score
        sorting = sets["queueSort"]
        return _Draft(
            path,
            ProfileSettings(name, names_by_point, weight_by_name, args, percentage),
            {"enabled": [entry.name for entry in sorting.enabled], "disabled": sorting.disabled},
        )

    def _args(self, items: Sequence[PluginConfig], path: str) -> Mapping[str, object]:
        args_by_plugin: dict[str, object] = {**DEFAULT_ARGS}
        seen: set[str] = set()
        for index, item in enumerate(items):
            at, name = f"{path}[{index}]", item.name
            if name in seen:
                self.problems.duplicate(at, name)
                continue
            seen.add(name)
            if name in REMOVED_PLUGINS:
                report_removed(at, name, self.problems)
            elif (plugin := self.out_of_tree.get(name)) is not None and plugin.args_type is not None:
                args_by_plugin[name] = read_out_of_tree_args(
                    item.args, plugin, self.problems.at(f"{at}.args")
                )
            elif name not in IN_TREE_BY_NAME and plugin is None:
                self.problems.add(f"{at}.name", f"plugin {shown(name)} does not exist")
            elif name in DEFAULT_ARGS:
                args = read_args(name, item.args, self.semantics, self.problems.at(f"{at}.args"))
                args_by_plugin[name] = args
                if note := note_without_effect(args):
                    self.notes.append(f"{at}.args.{note}")
            elif item.args is not None:
                self.notes.append(f"{at}.args: {name} takes no arguments, so these have no effect")
        return args_by_plugin


def check_percentage(percentage: int | None, problems: Problems) -> None:
    """Record a percentageOfNodesToScore, of a profile or of the whole configuration, that is none."""
    if percentage is not None and not 0 <= percentage <= 100:
        problems.invalid("percentageOfNodesToScore", percentage, "not in valid range [0-100]")


def _check_lists(
    scheduler_name: str, names_by_point: Mapping[str, Sequence[str]], problems: Problems
) -> None:
    profile = f"profile with scheduler name {shown(scheduler_name)}"
    if (n_sorting := len(names_by_point["queueSort"])) != 1:
        detail = f"only one queue sort plugin required for {profile}, but got {n_sorting}"
        problems.add("queueSort", detail)
    if not names_by_point["bind"]:
        problems.add("bind", f"at least one bind plugin is needed for {profile}")


def _check_common(drafts: list[_Draft], problems: Problems) -> None:
    """Report profiles that differ where none may: whether a running pod's annotation counts depends on no profile."""
    first, *others = drafts
    detail = "must be the same for all profiles"
    for draft in others:
        if draft.queue_sort != first.queue_sort:
            problems.invalid(f"{draft.path}.plugins.queueSort", draft.queue_sort, detail)
        own = _annotation_namespaces(draft)
        if own != _annotation_namespaces(first):
            path = f"{draft.path}.pluginConfig[InterPodAffinity].args.annotationNamespaces"
            problems.invalid(path, list(own.names), detail)


def _annotation_namespaces(draft: _Draft) -> AnnotationNamespaces:
    args = draft.settings.args_by_plugin.get(INTER_POD_AFFINITY)
    return args.annotation_namespaces if isinstance(args, InterPodAffinityArgs) else AnnotationNamespaces()
