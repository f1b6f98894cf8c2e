"""
Out-of-tree plugins: plugins of the user's, in files or packages, that run beside the built-in ones.

An out-of-tree plugin keeps the contract of `interface`, but may be wrong about it. `GuardedPlugin` stands between: it
keeps the plugin from changing the state, checks what the plugin returns (`out_of_tree_results`), and turns an
exception of the plugin into `PluginFailed`, which fails the pod's cycle. An out-of-tree plugin that failed never lets a
pod through.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from scheduler.engine.framework.events import Action, ClusterEventWithHint, Hint, HintFn, Resource, always
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation, Where
from scheduler.engine.framework.interface import (
    FeasibleNodes,
    FilterPlugin,
    PodContext,
    PreEnqueuePlugin,
    PreFiltered,
    PreFilterResult,
    PreScored,
    ScorePlugin,
)
from scheduler.engine.framework.out_of_tree_results import (
    GuardedFilter,
    GuardedScorer,
    PluginIdentity,
    as_said,
    guarded_explanation,
    shown,
)
from scheduler.engine.framework.status import SKIP, Code, Skip, Status, unresolvable
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.state.arrays import read_only
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.rule_guard import running_rule
from scheduler.errors import PluginFailed

#: The method by which a plugin runs at an extension point.
METHOD_BY_POINT: Final = {"filter": "prefilter", "score": "prescore", "preEnqueue": "admits"}

#: A plugin may name the version of the contract that it needs as `contract_version`.
CONTRACT_VERSION: Final = 1
#: How the `source` of a plugin of an installed package begins.
INSTALLED: Final = "package "
#: Runs a call of an out-of-tree plugin outside of a cycle; lets its exceptions pass.
Watched = Callable[[Callable[[], Any]], Any]


@dataclass(frozen=True, slots=True)
class OutOfTreePlugin:
    """
    A plugin of the user's that a configuration may name; its class makes an instance for each profile.

    `source`: the file or the package that it comes from. `version`: the plugin's own. `points`: its extension points,
    as a configuration names them. `default_weight`: of its scores; 0 if it does not score.
    """

    name: str
    plugin_class: type[Any]
    source: str
    version: str = ""
    points: tuple[str, ...] = ()
    default_weight: int = 0

    @property
    def is_installed(self) -> bool:
        """Whether it comes with a package, not from a file that the user named."""
        return self.source.startswith(INSTALLED)

    @property
    def args_type(self) -> type[Any] | None:
        """The type of its arguments, None if it takes none."""
        args_type: type[Any] | None = getattr(self.plugin_class, "args_type", None)
        return args_type

    @property
    def node_annotations(self) -> tuple[str, ...]:
        """The keys of the node annotations that it reads."""
        return tuple(getattr(self.plugin_class, "node_annotations", ()))

    @property
    def storage_kinds(self) -> frozenset[StorageKind]:
        """The kinds of storage objects that it reads."""
        return frozenset(getattr(self.plugin_class, "storage_kinds", ()))


@dataclass(slots=True)
class GuardedPlugin(FilterPlugin, ScorePlugin, PreEnqueuePlugin):
    """
    An out-of-tree plugin of one profile, as the framework runs it.

    `owner`: identifies the plugin, its profile and its arguments among the keys of derived values. `watched`: runs the
    plugin's calls outside of a cycle.
    """

    extension_points: ClassVar[Sequence[str]] = tuple(METHOD_BY_POINT)
    #: In doubt, siblings may lift its refusals.
    lifted_by_siblings: ClassVar[bool] = True

    name: str
    plugin: Any
    owner: Hashable
    watched: Watched = field(default=lambda call: call(), repr=False)
    #: The plugin is asked about pods with this label alone; None if it is asked about every pod.
    label: str | None = field(init=False)
    _identity: PluginIdentity = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Raise TypeError for a label that is no text, and whatever the plugin raises when asked for its events."""
        self._identity = PluginIdentity(self.name, type(self.plugin))
        self.label = getattr(self.plugin, "only_pods_with_label", None)
        if not isinstance(self.label, str | None):
            raise TypeError(f"only_pods_with_label is {self.label!r}, expected a label key")
        self.events_to_register()

    def concerns(self, pod: Pod) -> bool:
        """Return whether the plugin has to be asked about the pod: not if it names a label that the pod lacks."""
        return self.label is None or self.label in pod.labels

    # PreEnqueue.

    def admits(self, pod: Pod) -> bool:
        """Return whether the pod may become active; if the plugin fails, `OutOfTreeAdmission` fails its cycle."""
        if not self.concerns(pod):
            return True
        try:
            return bool(self.watched(lambda: self.asked_to_admit(pod)))
        except PluginFailed:  # and will again in the pod's cycle
            return True

    def asked_to_admit(self, pod: Pod) -> bool:
        """Return what the plugin says of the pod at PreEnqueue. Raises PluginFailed."""
        with self._identity.failing_at("PreFilter"):
            admitted = self.plugin.admits(pod)
            if admitted not in (True, False):
                raise TypeError(f"admits returned {shown(admitted)}, expected True or False")
            return bool(admitted)

    # PreFilter and Filter.

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Return what the plugin returns, checked. Raises PluginFailed."""
        if not self.concerns(context.pod):
            return SKIP
        identity = self._identity
        with identity.failing_at("PreFilter"):
            result = self.plugin.prefilter(context, view.owned_by(self.owner))
            if isinstance(result, Skip):
                return SKIP
            if isinstance(result, Status):
                return self._rejecting(result)
            names: frozenset[str] | None = None
            if isinstance(result, PreFilterResult):
                names, result = _names(result.node_names), result.node_filter
            if not callable(getattr(result, "mask", None)):
                raise TypeError(
                    f"prefilter returned {shown(result)}, expected a RuleFilter, a status or SKIP"
                )
        node_filter = GuardedFilter(identity, result, view.n_rows)
        return node_filter if names is None else PreFilterResult(node_filter, names)

    def _rejecting(self, status: Status) -> Status | Skip:
        """Return SKIP for a success, a failure as it is, and a refusal with a reason."""
        if status.code is Code.SUCCESS:
            return SKIP
        return status if status.code is Code.ERROR else self._identity.refusing(status)

    # PreScore and Score.

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Return what the plugin returns, checked. Raises PluginFailed."""
        if not self.concerns(context.pod):
            return SKIP
        with self._identity.failing_at("PreScore"):
            result = self.plugin.prescore(
                context, view.owned_by(self.owner), FeasibleNodes(read_only(feasible.mask))
            )
            if isinstance(result, Skip):
                return SKIP
            if isinstance(result, Status):
                return SKIP if result.code is Code.SUCCESS else result
            if not callable(getattr(result, "raw", None)):
                raise TypeError(f"prescore returned {shown(result)}, expected FinalScores, a status or SKIP")
        return GuardedScorer(self._identity, result, feasible)

    # Events and explanations.

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the plugin's events. A hint that raises counts as QUEUE. Raises whatever the plugin raises."""
        if not hasattr(self.plugin, "events_to_register"):
            return ()
        return [self._guarded_event(event) for event in self.plugin.events_to_register()]

    def _guarded_event(self, event: ClusterEventWithHint) -> ClusterEventWithHint:
        """Return the event with a hint that does not raise. Raises TypeError if it is no event."""
        if not isinstance(event, ClusterEventWithHint):
            raise TypeError(
                f"events_to_register returned {type(event).__name__}, expected ClusterEventWithHint"
            )
        if not isinstance(event.resource, Resource) or not isinstance(event.actions, Action):
            raise TypeError(
                f"found an event of {event.resource!r} and {event.actions!r}, expected Resource.NODE, Action.ADD"
            )
        if event.hint is None:
            return replace(event, needs=None)
        if not callable(event.hint):
            raise TypeError(f"found the hint {event.hint!r}, expected a function")
        # A hint of the user's may read any field of a pod: its result for one pod is used for equal pods only.
        return replace(event, hint=self._guarded_hint(event.hint), reads_labels=always, needs=None)

    def _guarded_hint(self, hint: HintFn) -> HintFn:
        def checked(pod: Pod, old: object, new: object) -> Hint:
            with running_rule():
                answer = hint(pod, old, new)
            if not isinstance(answer, Hint):
                raise TypeError(f"a hint returned {shown(answer)}, expected queue_if(...)")
            return answer

        def guarded(pod: Pod, old: object, new: object) -> Hint:
            try:
                answer: Hint = self.watched(lambda: checked(pod, old, new))
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001 - which `watched` counts; in doubt the pod is tried
                return Hint.QUEUE
            return answer

        return guarded

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Return the plugin's explanation of its refusals, empty if it gives none; if that fails, the error."""
        if not hasattr(self.plugin, "explain"):
            return PluginExplanation()
        return self._identity.explained(
            lambda: guarded_explanation(self._identity, self.plugin.explain(context.owned_by(self.owner))),
            lambda text: PluginExplanation(where=lambda rows: [text] * len(rows)),
        )

    def explain_rejection(self, context: ExplainContext) -> str | Where:
        """Return what the plugin says beside the status of its PreFilter; if that fails, the error."""
        if not hasattr(self.plugin, "explain_rejection"):
            return ""
        plugin, owner = self.plugin, self.owner
        return self._identity.explained(
            lambda: as_said(plugin.explain_rejection(context.owned_by(owner))), as_said
        )


class OutOfTreeAdmission(FilterPlugin):
    """Repeats an out-of-tree plugin's PreEnqueue at the beginning of the cycle, where a failure has a message."""

    def __init__(self, plugin: GuardedPlugin) -> None:
        self.name = plugin.name
        self._plugin = plugin

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip an admitted pod. Raises PluginFailed."""
        del view
        plugin = self._plugin
        if not plugin.concerns(context.pod):
            return SKIP
        return (
            SKIP
            if plugin.asked_to_admit(context.pod)
            else unresolvable(f"pod is not admitted by plugin {self.name}")
        )


def _names(names: Iterable[str]) -> frozenset[str]:
    """Return the only nodes that an out-of-tree plugin names. Raises TypeError if they are no names."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"node_names is {names!r}, expected a set of names")
    return frozenset(names)
