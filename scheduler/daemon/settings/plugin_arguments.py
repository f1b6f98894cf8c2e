"""
Reads, defaults and validates the arguments of plugins.

Source: pkg/scheduler/apis/config/v1/defaults.go and apis/config/validation/validation_pluginargs.go (kubernetes 1.36).
Difference: NodeResourcesFit's arguments are validated on reading; upstream validates them when it builds the plugin,
and its message lacks their place in the file.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeVar, get_args

from scheduler.daemon.settings.added_affinity import read_added_affinity
from scheduler.daemon.settings.decoding import ObjectReader
from scheduler.daemon.settings.problems import Problems
from scheduler.engine.framework.shape import ShapePoint
from scheduler.engine.model.annotations import MARKED_NAMESPACES
from scheduler.engine.model.semantics import Gate
from scheduler.engine.plugins.default_preemption.search import DefaultPreemptionArgs
from scheduler.engine.plugins.dynamic_resources.filtering import DynamicResourcesArgs
from scheduler.engine.plugins.gang_scheduling import GangSchedulingArgs
from scheduler.engine.plugins.inter_pod_affinity.plugin import InterPodAffinityArgs
from scheduler.engine.plugins.node_affinity import NodeAffinityArgs
from scheduler.engine.plugins.node_resources.resource_allocation import (
    CPU_AND_MEMORY,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceWeight,
    ScoringStrategy,
    ScoringStrategyType,
)
from scheduler.engine.plugins.pod_topology_spread.constraints import (
    DefaultConstraint,
    DefaultingType,
    PodTopologySpreadArgs,
    WhenUnsatisfiable,
)
from scheduler.engine.plugins.registry import IN_TREE
from scheduler.engine.plugins.volume_binding.plugin import VolumeBindingArgs
from scheduler.engine.syntax.names import label_key_faults
from scheduler.engine.syntax.selectors import Selector, SelectorError, parse_selector

_T = TypeVar("_T")

DEFAULT_ARGS: Final[Mapping[str, object]] = MappingProxyType(
    {name: kind() for name, plugin in IN_TREE.items() if (kind := plugin.args_type) is not None}
)


def read_inter_pod_affinity(reader: ObjectReader) -> InterPodAffinityArgs:
    """Return InterPodAffinityArgs, complete."""
    weight = reader.integer("hardPodAffinityWeight")
    ignore = reader.boolean("ignorePreferredTermsOfExistingPods")
    weight = 1 if weight is None else weight
    if not 0 <= weight <= 100:
        reader.problems.invalid(reader.at("hardPodAffinityWeight"), weight, "not in valid range [0, 100]")
    exempt = reader.texts("exemptNamespaces")
    with reader.child("annotationNamespaces") as annotating:
        names = annotating.texts("names")
        selector = _read_selector(annotating)
    return InterPodAffinityArgs(weight, ignore or False, exempt, names, selector)


def _read_selector(reader: ObjectReader) -> Selector:
    """Return the label selector of the namespaces whose annotations may be about others; the default if absent."""
    if reader.raw("selector") is None:
        return MARKED_NAMESPACES
    with reader.child("selector") as selector:
        with selector.child("matchLabels") as labels:
            match_labels = {key: labels.text(key) or "" for key in labels.names()}
        expressions = []
        for one in selector.objects("matchExpressions"):
            with one:
                expressions.append((one.text("key") or "", one.text("operator") or "", one.texts("values")))
    try:
        return parse_selector(match_labels, expressions)
    except SelectorError as error:
        reader.problems.add(reader.at("selector"), str(error))
        return MARKED_NAMESPACES


def read_node_affinity(reader: ObjectReader) -> NodeAffinityArgs:
    """Return NodeAffinityArgs; every term of the added affinity parses."""
    raw = reader.raw("addedAffinity")
    if raw is None:
        return NodeAffinityArgs()
    return NodeAffinityArgs(read_added_affinity(reader.child("addedAffinity")))


def read_balanced_allocation(reader: ObjectReader) -> NodeResourcesBalancedAllocationArgs:
    """Return NodeResourcesBalancedAllocationArgs, complete."""
    path, problems = reader.at("resources"), reader.problems
    resources = _resources(reader)
    seen: set[str] = set()
    for index, resource in enumerate(resources):
        if resource.name in seen:
            problems.duplicate(f"{path}[{index}].name", resource.name)
        seen.add(resource.name)
        if resource.weight != 1:
            problems.invalid(f"{path}[{index}].weight", resource.weight, "must be 1")
    return NodeResourcesBalancedAllocationArgs(resources)


def read_node_resources_fit(reader: ObjectReader) -> NodeResourcesFitArgs:
    """Return NodeResourcesFitArgs, complete."""
    problems = reader.problems
    ignored = reader.texts("ignoredResources")
    for index, name in enumerate(ignored):
        _check_label_name(f"{reader.at('ignoredResources')}[{index}]", name, problems)
    groups = reader.texts("ignoredResourceGroups")
    for index, group in enumerate(groups):
        path = f"{reader.at('ignoredResourceGroups')}[{index}]"
        if "/" in group:
            problems.invalid(path, group, "resource group name can't contain '/'")
        _check_label_name(path, group, problems)
    if reader.raw("scoringStrategy") is None:
        return NodeResourcesFitArgs(ignored, groups)
    with reader.child("scoringStrategy") as strategy:
        return NodeResourcesFitArgs(ignored, groups, _read_strategy(strategy))


def _read_strategy(reader: ObjectReader) -> ScoringStrategy:
    problems, kind = reader.problems, reader.text("type") or ""
    supported = get_args(ScoringStrategyType)
    if kind not in supported:
        problems.unsupported(reader.at("type"), kind, supported)
    resources = _resources(reader)
    for index, resource in enumerate(resources):
        if not 0 < resource.weight <= 100:
            problems.invalid(
                f"{reader.at('resources')}[{index}].weight",
                resource.weight,
                f"resource weight of {resource.name} not in valid range (0, 100]",
            )
    ratio_path = reader.at("requestedToCapacityRatio")
    given = reader.raw("requestedToCapacityRatio") is not None
    with reader.child("requestedToCapacityRatio") as ratio:
        shape = tuple(_read_point(item) for item in ratio.objects("shape"))
    if kind == "RequestedToCapacityRatio":
        if given:
            _check_shape(shape, f"{ratio_path}.shape", problems)
        else:
            problems.required(ratio_path, "must be specified when type is RequestedToCapacityRatio")
    elif given:
        problems.forbidden(ratio_path, "must be nil when type is not RequestedToCapacityRatio")
    return ScoringStrategy(_one_of(supported, kind, "LeastAllocated"), resources, shape)


def _read_point(reader: ObjectReader) -> ShapePoint:
    with reader:
        return ShapePoint(reader.integer("utilization") or 0, reader.integer("score") or 0)


def _check_shape(shape: tuple[ShapePoint, ...], path: str, problems: Problems) -> None:
    if not shape:
        problems.required(path, "at least one point must be specified")
    for index in range(1, len(shape)):
        if shape[index - 1].utilization >= shape[index].utilization:
            problems.invalid(
                f"{path}[{index}].utilization",
                shape[index].utilization,
                "values must be sorted in increasing order",
            )
            break
    for index, point in enumerate(shape):
        if not 0 <= point.utilization <= 100:
            problems.invalid(f"{path}[{index}].utilization", point.utilization, "not in valid range [0, 100]")
        if not 0 <= point.score <= 10:
            problems.invalid(f"{path}[{index}].score", point.score, "not in valid range [0, 10]")


def _resources(reader: ObjectReader) -> tuple[ResourceWeight, ...]:
    resources = []
    for item in reader.objects("resources"):
        with item:
            resources.append(ResourceWeight(item.text("name") or "", item.integer("weight", bits=64) or 1))
    return tuple(resources) or CPU_AND_MEMORY


def read_pod_topology_spread(reader: ObjectReader) -> PodTopologySpreadArgs:
    """Return PodTopologySpreadArgs, complete."""
    problems, path = reader.problems, reader.at("defaultingType")
    kind = reader.text("defaultingType") or "System"
    read = [_read_constraint(item) for item in reader.objects("defaultConstraints")]
    constraints = tuple(constraint for constraint, _ in read)
    supported = get_args(DefaultingType)
    if kind not in supported:
        problems.unsupported(path, kind, supported)
    if kind == "System" and constraints:
        problems.invalid(path, kind, "when .defaultConstraints are not empty")
    seen: set[tuple[str, str]] = set()
    for index, (constraint, action) in enumerate(read):
        key = (constraint.topology_key, action)
        if key in seen:
            problems.duplicate(f"{reader.at('defaultConstraints')}[{index}]", f"{{{', '.join(key)}}}")
        seen.add(key)
    return PodTopologySpreadArgs(_one_of(supported, kind, "System"), constraints)


def _read_constraint(reader: ObjectReader) -> tuple[DefaultConstraint, str]:
    """Return the constraint, and its whenUnsatisfiable as written."""
    with reader:
        max_skew = reader.integer("maxSkew") or 0
        topology_key = reader.text("topologyKey") or ""
        action = reader.text("whenUnsatisfiable") or ""
        _check_constraint(reader, max_skew, topology_key, action)
        constraint = DefaultConstraint(
            max_skew=max_skew,
            topology_key=topology_key,
            when_unsatisfiable=_one_of(get_args(WhenUnsatisfiable), action, "ScheduleAnyway"),
            min_domains=reader.integer("minDomains"),
            node_affinity_policy=reader.text("nodeAffinityPolicy"),
            node_taints_policy=reader.text("nodeTaintsPolicy"),
            match_label_keys=reader.texts("matchLabelKeys"),
        )
    return constraint, action


def _check_constraint(reader: ObjectReader, max_skew: int, topology_key: str, action: str) -> None:
    problems, supported = reader.problems, get_args(WhenUnsatisfiable)
    if max_skew <= 0:
        problems.invalid(reader.at("maxSkew"), max_skew, "not in valid range (0, inf)")
    if not topology_key:
        problems.required(reader.at("topologyKey"), "can not be empty")
    else:
        _check_label_name(reader.at("topologyKey"), topology_key, problems)
    if not action:
        problems.required(reader.at("whenUnsatisfiable"), "can not be empty")
    elif action not in supported:
        problems.unsupported(reader.at("whenUnsatisfiable"), action, supported)
    if reader.raw("labelSelector") is not None:
        problems.forbidden(
            reader.at("labelSelector"), "constraint must not define a selector, as they deduced for each pod"
        )


def read_volume_binding(reader: ObjectReader) -> VolumeBindingArgs:
    """Return VolumeBindingArgs, complete."""
    timeout_s = reader.integer("bindTimeoutSeconds", bits=64)
    if timeout_s is not None and timeout_s < 0:
        detail = "invalid BindTimeoutSeconds, should not be a negative value"
        reader.problems.invalid(reader.at("bindTimeoutSeconds"), timeout_s, detail)
    shape = tuple(_read_point(item) for item in reader.objects("shape"))
    if shape:
        _check_shape(shape, reader.at("shape"), reader.problems)
    defaults = VolumeBindingArgs()
    return VolumeBindingArgs(defaults.bind_timeout_s if timeout_s is None else timeout_s, shape)


def _one_of(supported: tuple[_T, ...], value: str, otherwise: _T) -> _T:
    return next((word for word in supported if word == value), otherwise)


def _check_label_name(path: str, name: str, problems: Problems) -> None:
    if faults := label_key_faults(name):
        problems.invalid(path, name, "; ".join(faults))


def read_default_preemption(reader: ObjectReader) -> DefaultPreemptionArgs:
    """Return DefaultPreemptionArgs, complete."""
    percentage, absolute = (
        reader.integer("minCandidateNodesPercentage"),
        reader.integer("minCandidateNodesAbsolute"),
    )
    percentage = 10 if percentage is None else percentage
    absolute = 100 if absolute is None else absolute
    problems = reader.problems
    percentage_path = reader.at("minCandidateNodesPercentage")
    absolute_path = reader.at("minCandidateNodesAbsolute")
    if not 0 <= percentage <= 100:
        problems.invalid(percentage_path, percentage, "not in valid range [0, 100]")
    if absolute < 0:
        problems.invalid(absolute_path, absolute, "not in valid range [0, inf)")
    if percentage == absolute == 0:
        zero_with = "cannot be zero at the same time as"
        problems.invalid(percentage_path, percentage, f"{zero_with} minCandidateNodesAbsolute")
        problems.invalid(absolute_path, absolute, f"{zero_with} minCandidateNodesPercentage")
    return DefaultPreemptionArgs(
        percentage, absolute, prefer_fewer_victims=reader.boolean("preferFewerVictims") is True
    )


def read_gang_scheduling(reader: ObjectReader) -> GangSchedulingArgs:
    """Return GangSchedulingArgs, complete."""
    most, levels = reader.integer("maxSearchDecisions"), reader.texts("topologyLevels")
    if most is not None and not 0 <= most <= 100_000:
        reader.problems.invalid(reader.at("maxSearchDecisions"), most, "not in valid range [0, 100000]")
    for index, key in enumerate(levels):
        _check_label_name(f"{reader.at('topologyLevels')}[{index}]", key, reader.problems)
    args = GangSchedulingArgs(topology_levels=levels)
    return args if most is None else replace(args, max_search_decisions=most)


def read_dynamic_resources(reader: ObjectReader) -> DynamicResourcesArgs:
    """Return DynamicResourcesArgs, complete."""
    given: list[float | None] = []
    for name, least_s, detail in (
        ("filterTimeout", 0, "must be zero or positive"),
        ("bindingTimeout", 1, "must be at least 1 second"),
    ):
        timeout_s = reader.duration_s(name)
        if timeout_s is not None and timeout_s < least_s:
            reader.problems.invalid(reader.at(name), reader.raw(name), detail)
        given.append(timeout_s)
    defaults = DynamicResourcesArgs()
    filter_timeout_s, binding_timeout_s = given
    preempts = reader.boolean("preemptForDevices")
    return DynamicResourcesArgs(
        defaults.filter_timeout_s if filter_timeout_s is None else filter_timeout_s,
        defaults.binding_timeout_s if binding_timeout_s is None else binding_timeout_s,
        defaults.preempt_for_devices if preempts is None else preempts,
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


READ_ARGS: Final[Mapping[str, Callable[[ObjectReader], object]]] = MappingProxyType(
    {
        "DefaultPreemption": read_default_preemption,
        "DynamicResources": read_dynamic_resources,
        "GangScheduling": read_gang_scheduling,
        "InterPodAffinity": read_inter_pod_affinity,
        "NodeAffinity": read_node_affinity,
        "NodeResourcesBalancedAllocation": read_balanced_allocation,
        "NodeResourcesFit": read_node_resources_fit,
        "PodTopologySpread": read_pod_topology_spread,
        "VolumeBinding": read_volume_binding,
    }
)
#: Arguments that upstream refuses while a gate is off, by plugin.
GATED_ARGS: Final[Mapping[str, tuple[str, Gate]]] = MappingProxyType(
    {"VolumeBinding": ("shape", Gate.STORAGE_CAPACITY_SCORING)}
)
