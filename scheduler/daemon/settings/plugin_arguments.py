"""
Reads, defaults and validates the arguments of plugins. Those of an out-of-tree plugin are a struct of its own.

Source: pkg/scheduler/apis/config/v1/defaults.go and apis/config/validation/validation_pluginargs.go (kubernetes 1.36).
Difference: NodeResourcesFit's arguments are validated on reading; upstream validates them when it builds the plugin,
and its message lacks their place in the file.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from scheduler.daemon.settings.decoding import checked_fields, decoded
from scheduler.daemon.settings.out_of_tree_files import fault_when_made
from scheduler.daemon.settings.plugin_lists import API_VERSION
from scheduler.daemon.settings.problems import Problems
from scheduler.engine.framework.out_of_tree import OutOfTreePlugin
from scheduler.engine.framework.out_of_tree_results import described as described_error
from scheduler.engine.framework.shape import ShapePoint
from scheduler.engine.model import wire
from scheduler.engine.model.affinity import label_selector
from scheduler.engine.model.semantics import Gate, Semantics
from scheduler.engine.model.terms import NodeTerm
from scheduler.engine.plugins.default_preemption.search import DefaultPreemptionArgs
from scheduler.engine.plugins.dynamic_resources.filtering import DynamicResourcesArgs
from scheduler.engine.plugins.gang_scheduling import GangSchedulingArgs
from scheduler.engine.plugins.inter_pod_affinity.plugin import (
    AnnotationNamespaces,
    InterPodAffinityArgs,
    written_selector,
)
from scheduler.engine.plugins.node_affinity import NodeAffinityArgs
from scheduler.engine.plugins.node_resources.resource_allocation import (
    CPU_AND_MEMORY,
    RATIO,
    SCORING_STRATEGIES,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceWeight,
    ScoringStrategy,
)
from scheduler.engine.plugins.pod_topology_spread.constraints import (
    ACTIONS,
    DEFAULTING_TYPES,
    DefaultConstraint,
    PodTopologySpreadArgs,
)
from scheduler.engine.plugins.registry import IN_TREE
from scheduler.engine.plugins.volume_binding.plugin import VolumeBindingArgs
from scheduler.engine.syntax.durations import format_duration
from scheduler.engine.syntax.names import label_key_faults
from scheduler.engine.syntax.selectors import SelectorError

DEFAULT_ARGS: Final[Mapping[str, wire.Wire]] = MappingProxyType(
    {name: kind() for name, plugin in IN_TREE.items() if (kind := plugin.args_type) is not None}
)
#: Fields that the arguments of any plugin may have.
_OF_TYPE: Final = ("apiVersion", "kind")
#: An argument of DefaultPreemption that ended.
_ENDED: Final = "preferFewerVictims"


def read_args(name: str, value: object, semantics: Semantics, problems: Problems) -> object:
    """Return the arguments of a plugin that takes some, complete; its defaults if they are another plugin's."""
    kind = type(DEFAULT_ARGS[name])
    if isinstance(value, dict):
        given = f"{value.get('apiVersion') or API_VERSION}, Kind={value.get('kind') or kind.__name__}"
        if given != f"{API_VERSION}, Kind={kind.__name__}":
            problems.invalid("", given, "has to match plugin args")
            return DEFAULT_ARGS[name]
    value = {} if value is None else value
    if isinstance(value, dict) and kind is DefaultPreemptionArgs and _ENDED in value:
        instead = "give pods that are to stay a higher priority or a PodDisruptionBudget"
        problems.add(_ENDED, f"has ended; {instead}")
        value = {field: given for field, given in value.items() if field != _ENDED}
    args = _CHECKS[kind](decoded(value, kind, problems, also=_OF_TYPE), problems)
    # Upstream refuses the shape while the gate is off.
    gate, shape = Gate.STORAGE_CAPACITY_SCORING, value.get("shape") if isinstance(value, dict) else None
    if kind is VolumeBindingArgs and shape is not None and not semantics.enabled(gate):
        detail = f"unexpected field `shape`, remove it or turn on the feature gate {gate}"
        problems.invalid("shape", shape, detail)
    return args


def _inter_pod_affinity(args: InterPodAffinityArgs, problems: Problems) -> InterPodAffinityArgs:
    _check_range(args.hard_pod_affinity_weight, 100, "hardPodAffinityWeight", problems)
    given = args.annotation_namespaces
    try:
        selector = written_selector(label_selector(given.selector))
    except SelectorError as error:
        problems.add("annotationNamespaces.selector", str(error))
        return args
    return msgspec.structs.replace(args, annotation_namespaces=AnnotationNamespaces(given.names, selector))


def _node_affinity(args: NodeAffinityArgs, problems: Problems) -> NodeAffinityArgs:
    """
    Check that the terms parse. Of several problems in one requirement only the first is reported, as for a pod's own.

    Source: component-helpers/scheduling/corev1/nodeaffinity (NewNodeSelector, NewPreferredSchedulingTerms), kubernetes
    1.36.
    """
    if (affinity := args.added_affinity) is not None:
        at = "addedAffinity.{}DuringSchedulingIgnoredDuringExecution".format
        terms = () if affinity.required is None else affinity.required.terms
        for index, term in enumerate(terms):
            _check_node_term(term, problems.at(f"{at('required')}.nodeSelectorTerms[{index}]"))
        for index, preferred in enumerate(affinity.preferred or ()):
            # Upstream's path lacks `preference`, and upstream does not parse terms of weight 0.
            if preferred.weight:
                _check_node_term(preferred.term, problems.at(f"{at('preferred')}[{index}]"))
    return args


def _check_node_term(term: NodeTerm, problems: Problems) -> None:
    for at, problem in term.problems():
        field, _, detail = problem.partition(": ")
        problems.add(f"{at}.{field}", detail)


def _balanced_allocation(
    args: NodeResourcesBalancedAllocationArgs, problems: Problems
) -> NodeResourcesBalancedAllocationArgs:
    resources = _with_weights(args.resources)
    seen: set[str] = set()
    for index, resource in enumerate(resources):
        if resource.name in seen:
            problems.duplicate(f"resources[{index}].name", resource.name)
        seen.add(resource.name)
        if resource.weight != 1:
            problems.invalid(f"resources[{index}].weight", resource.weight, "must be 1")
    return NodeResourcesBalancedAllocationArgs(resources)


def _fit(args: NodeResourcesFitArgs, problems: Problems) -> NodeResourcesFitArgs:
    for index, name in enumerate(args.ignored_resources):
        _check_label_name(f"ignoredResources[{index}]", name, problems)
    for index, group in enumerate(args.ignored_resource_groups):
        at = f"ignoredResourceGroups[{index}]"
        if "/" in group:
            problems.invalid(at, group, "resource group name can't contain '/'")
        _check_label_name(at, group, problems)
    strategy = msgspec.structs.replace(
        args.scoring_strategy, resources=_with_weights(args.scoring_strategy.resources)
    )
    _check_strategy(strategy, problems.at("scoringStrategy"))
    return msgspec.structs.replace(args, scoring_strategy=strategy)


def _check_strategy(strategy: ScoringStrategy, problems: Problems) -> None:
    ratio_path, ratio = "requestedToCapacityRatio", strategy.requested_to_capacity_ratio
    if strategy.type not in SCORING_STRATEGIES:
        problems.unsupported("type", strategy.type, SCORING_STRATEGIES)
    for index, resource in enumerate(strategy.resources):
        if not 0 < resource.weight <= 100:
            detail = f"resource weight of {resource.name} not in valid range (0, 100]"
            problems.invalid(f"resources[{index}].weight", resource.weight, detail)
    if strategy.type != RATIO:
        if ratio is not None:
            problems.forbidden(ratio_path, f"must be nil when type is not {RATIO}")
    elif ratio is None:
        problems.required(ratio_path, f"must be specified when type is {RATIO}")
    else:
        if not ratio.shape:
            problems.required(f"{ratio_path}.shape", "at least one point must be specified")
        _check_shape(ratio.shape, problems.at(f"{ratio_path}.shape"))


def _check_shape(shape: tuple[ShapePoint, ...], problems: Problems) -> None:
    for index in range(1, len(shape)):
        if shape[index - 1].utilization >= shape[index].utilization:
            detail = "values must be sorted in increasing order"
            problems.invalid(f"[{index}].utilization", shape[index].utilization, detail)
            break
    for index, point in enumerate(shape):
        _check_range(point.utilization, 100, f"[{index}].utilization", problems)
        _check_range(point.score, 10, f"[{index}].score", problems)


def _with_weights(resources: tuple[ResourceWeight, ...]) -> tuple[ResourceWeight, ...]:
    """Return the resources with 1 for a weight of 0; upstream's default for none."""
    return tuple(ResourceWeight(each.name, each.weight or 1) for each in resources) or CPU_AND_MEMORY


def _topology_spread(args: PodTopologySpreadArgs, problems: Problems) -> PodTopologySpreadArgs:
    kind, constraints = args.defaulting_type or "System", args.default_constraints
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        at = f"defaultConstraints[{index}]"
        _check_constraint(constraint, problems.at(at))
        key = (constraint.topology_key, constraint.when_unsatisfiable)
        if key in seen:
            problems.duplicate(at, f"{{{', '.join(key)}}}")
        seen.add(key)
    if kind not in DEFAULTING_TYPES:
        problems.unsupported("defaultingType", kind, DEFAULTING_TYPES)
    if kind == "System" and constraints:
        problems.invalid("defaultingType", kind, "when .defaultConstraints are not empty")
    return msgspec.structs.replace(args, defaulting_type=kind)


def _check_constraint(constraint: DefaultConstraint, problems: Problems) -> None:
    action = constraint.when_unsatisfiable
    if constraint.max_skew <= 0:
        problems.invalid("maxSkew", constraint.max_skew, "not in valid range (0, inf)")
    if not constraint.topology_key:
        problems.required("topologyKey", "can not be empty")
    else:
        _check_label_name("topologyKey", constraint.topology_key, problems)
    if not action:
        problems.required("whenUnsatisfiable", "can not be empty")
    elif action not in ACTIONS:
        problems.unsupported("whenUnsatisfiable", action, ACTIONS)
    if constraint.label_selector is not None:
        detail = "constraint must not define a selector, as they deduced for each pod"
        problems.forbidden("labelSelector", detail)


def _volume_binding(args: VolumeBindingArgs, problems: Problems) -> VolumeBindingArgs:
    if args.bind_timeout_s < 0:
        detail = "invalid BindTimeoutSeconds, should not be a negative value"
        problems.invalid("bindTimeoutSeconds", args.bind_timeout_s, detail)
    _check_shape(args.shape, problems.at("shape"))
    return args


def _default_preemption(args: DefaultPreemptionArgs, problems: Problems) -> DefaultPreemptionArgs:
    percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    names = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
    _check_range(percentage, 100, names[0], problems)
    if absolute < 0:
        problems.invalid(names[1], absolute, "not in valid range [0, inf)")
    if percentage == absolute == 0:
        for name, other in (names, names[::-1]):
            problems.invalid(name, 0, f"cannot be zero at the same time as {other}")
    return args


def _gang_scheduling(args: GangSchedulingArgs, problems: Problems) -> GangSchedulingArgs:
    _check_range(args.max_search_decisions, 100_000, "maxSearchDecisions", problems)
    for index, key in enumerate(args.topology_levels):
        _check_label_name(f"topologyLevels[{index}]", key, problems)
    return args


def _dynamic_resources(args: DynamicResourcesArgs, problems: Problems) -> DynamicResourcesArgs:
    for name, timeout_s, least_s, detail in (
        ("filterTimeout", args.filter_timeout_s, 0, "must be zero or positive"),
        ("bindingTimeout", args.binding_timeout_s, 1, "must be at least 1 second"),
    ):
        if timeout_s < least_s:
            problems.invalid(name, format_duration(timeout_s), detail)
    return args


def _check_range(value: int, most: int, path: str, problems: Problems) -> None:
    if not 0 <= value <= most:
        problems.invalid(path, value, f"not in valid range [0, {most}]")


def _check_label_name(path: str, name: str, problems: Problems) -> None:
    if faults := label_key_faults(name):
        problems.invalid(path, name, "; ".join(faults))


#: What completes and checks the arguments of each type, as far as types do not say it.
_CHECKS: Final[Mapping[type[Any], Callable[[Any, Problems], object]]] = MappingProxyType(
    {
        DefaultPreemptionArgs: _default_preemption,
        DynamicResourcesArgs: _dynamic_resources,
        GangSchedulingArgs: _gang_scheduling,
        InterPodAffinityArgs: _inter_pod_affinity,
        NodeAffinityArgs: _node_affinity,
        NodeResourcesBalancedAllocationArgs: _balanced_allocation,
        NodeResourcesFitArgs: _fit,
        PodTopologySpreadArgs: _topology_spread,
        VolumeBindingArgs: _volume_binding,
    }
)


def note_without_effect(args: object) -> str:
    """Return which argument differs from its default without effect, and why; empty if none does."""
    if (
        isinstance(args, DynamicResourcesArgs)
        and args.filter_timeout_s != DynamicResourcesArgs().filter_timeout_s
    ):
        return (
            "filterTimeout: has no effect: the search for devices is bounded in steps for all nodes together"
        )
    return ""


def read_out_of_tree_args(value: object, plugin: OutOfTreePlugin, problems: Problems) -> object:
    """Return the arguments of a plugin that takes some, complete; None after a problem."""
    kind, n_problems = plugin.args_type, len(problems.lines)
    if kind is None:
        return None
    fields = checked_fields({} if value is None else value, kind, problems, also=_OF_TYPE)
    if len(problems.lines) > n_problems:
        return None
    try:
        args: object = msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:  # the struct's own check, of several fields
        problems.add("", str(error))
        return None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the same check, which may raise anything
        problems.add("", described_error(error, kind))
        return None
    for fault in fault_when_made(plugin.plugin_class, lambda: args):
        problems.add("", f"plugin {plugin.name} {fault}")
    return args


def add_default_args(
    args_by_plugin: Mapping[str, object],
    out_of_tree: Iterable[OutOfTreePlugin],
    problems: Problems,
) -> Mapping[str, object]:
    """Return the arguments with the defaults of these plugins, which the profile runs, where it configures none."""
    complete = dict(args_by_plugin)
    for plugin in out_of_tree:
        if plugin.args_type is None or plugin.name in complete:
            continue
        missing = [one.encode_name for one in msgspec.structs.fields(plugin.args_type) if one.required]
        if missing:
            problems.required("", f"plugin {plugin.name} has no default for {', '.join(missing)}")
        else:
            complete[plugin.name] = plugin.args_type()
    return MappingProxyType(complete)
