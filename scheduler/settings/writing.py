"""
Writes Settings as a configuration file that relies on no default.

Plugins are listed by extension point with every default disabled, so that a reader sees what runs where and in which
order without knowing how multiPoint expands.
"""

import json

import msgspec

from scheduler.errors import InvariantViolation
from scheduler.model.semantics import Gate
from scheduler.plugins.default_preemption.args import DefaultPreemptionArgs
from scheduler.plugins.gang_scheduling import GangSchedulingArgs
from scheduler.plugins.inter_pod_affinity.args import InterPodAffinityArgs
from scheduler.plugins.node_affinity import NodeAffinityArgs
from scheduler.plugins.node_resources.args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceWeight,
)
from scheduler.plugins.pod_topology_spread.args import DefaultConstraint, PodTopologySpreadArgs
from scheduler.plugins.volume_binding.args import VolumeBindingArgs
from scheduler.settings.documents import write_document
from scheduler.settings.durations import format_duration
from scheduler.settings.loading import KIND
from scheduler.settings.plugin_lists import ALL, API_VERSION
from scheduler.settings.plugin_table import MULTI_POINT
from scheduler.settings.problems import shown
from scheduler.settings.resolved import ProfileSettings, Settings
from scheduler.syntax.selectors import Selector

_Fields = dict[str, object]


def resolved_yaml(settings: Settings) -> str:
    """
    Return the completed configuration as YAML that loads to equal settings under the same feature gates.

    Comments at its top have what no field holds: notes, plugins that are not built, feature gates.
    """
    return "".join(f"# {line}\n" for line in _remarks(settings)) + write_document(resolved_document(settings))


def as_json(settings: Settings) -> str:
    """
    Return the body of /configz: upstream's `componentconfig`, and our additions under our own name.

    Both have a kind, since programs decode the body as a map of objects.
    """
    own = {
        "apiVersion": "affinity-scheduler.io/v1",
        "kind": "AffinitySchedulerStatus",
        "notBuilt": {profile.scheduler_name: list(profile.not_built) for profile in settings.profiles},
        "featureGates": {gate.value: settings.semantics.enabled(gate) for gate in Gate},
        "notes": list(settings.notes),
    }
    return json.dumps({"componentconfig": resolved_document(settings), "affinity-scheduler": own})


def resolved_document(settings: Settings) -> _Fields:
    """Return the completed configuration as a KubeSchedulerConfiguration with every field present."""
    election, client = settings.leader_election, settings.client_connection
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "parallelism": settings.parallelism,
        "leaderElection": {
            "leaderElect": election.leader_elect,
            "leaseDuration": format_duration(election.lease_duration_s),
            "renewDeadline": format_duration(election.renew_deadline_s),
            "retryPeriod": format_duration(election.retry_period_s),
            "resourceLock": election.resource_lock,
            "resourceName": election.resource_name,
            "resourceNamespace": election.resource_namespace,
        },
        "clientConnection": {
            "kubeconfig": client.kubeconfig,
            "acceptContentTypes": client.accept_content_types,
            "contentType": client.content_type,
            "qps": int(client.qps) if client.qps.is_integer() else client.qps,
            "burst": client.burst,
        },
        "enableProfiling": settings.enable_profiling,
        "enableContentionProfiling": settings.enable_contention_profiling,
        "percentageOfNodesToScore": settings.percentage_of_nodes_to_score,
        "podInitialBackoffSeconds": settings.pod_initial_backoff_s,
        "podMaxBackoffSeconds": settings.pod_max_backoff_s,
        "delayCacheUntilActive": settings.delay_cache_until_active,
        "profiles": [_profile(profile) for profile in settings.profiles],
    }


def _remarks(settings: Settings) -> list[str]:
    not_built = [
        f"notBuilt in profile {shown(profile.scheduler_name)}: {', '.join(profile.not_built)}"
        for profile in settings.profiles
        if profile.not_built
    ]
    gates = ", ".join(f"{gate}={shown(settings.semantics.enabled(gate))}" for gate in Gate)
    return [*(f"note: {note}" for note in settings.notes), *not_built, f"featureGates: {gates}"]


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


def _selector(selector: Selector) -> _Fields:
    expressions: list[_Fields] = [
        {
            "key": one.key,
            "operator": one.operator,
            **({"values": list(one.values)} if one.values else {}),
        }
        for one in selector.requirements
    ]
    return {"matchExpressions": expressions} if expressions else {}


def args_document(args: object) -> _Fields:
    """Return a plugin's arguments as a configuration has them."""
    match args:
        case DefaultPreemptionArgs():
            return {
                "minCandidateNodesPercentage": args.min_candidate_nodes_percentage,
                "minCandidateNodesAbsolute": args.min_candidate_nodes_absolute,
            }
        case GangSchedulingArgs():
            return {"maxSearchDecisions": args.max_search_decisions}
        case InterPodAffinityArgs():
            exempt = {"exemptNamespaces": list(args.exempt_namespaces)} if args.exempt_namespaces else {}
            annotating: _Fields = {"selector": _selector(args.annotation_namespace_selector)}
            if args.annotation_namespaces:
                annotating["names"] = list(args.annotation_namespaces)
            return {
                "hardPodAffinityWeight": args.hard_pod_affinity_weight,
                "ignorePreferredTermsOfExistingPods": args.ignore_preferred_terms_of_existing_pods,
                **exempt,
                "annotationNamespaces": annotating,
            }
        case NodeAffinityArgs():
            return {} if args.added_affinity is None else {"addedAffinity": args.added_affinity}
        case NodeResourcesBalancedAllocationArgs():
            return {"resources": _resources(args.resources)}
        case NodeResourcesFitArgs():
            return _fit(args)
        case PodTopologySpreadArgs():
            return {
                "defaultingType": args.defaulting_type,
                "defaultConstraints": [_constraint(constraint) for constraint in args.default_constraints],
            }
        case VolumeBindingArgs():
            return {"bindTimeoutSeconds": args.bind_timeout_s}
        case msgspec.Struct():
            return dict(msgspec.to_builtins(args))
        case _:
            raise InvariantViolation(f"no text is known for arguments of type {type(args).__name__}")


def _fit(args: NodeResourcesFitArgs) -> _Fields:
    strategy = args.scoring_strategy
    shape = [{"utilization": point.utilization, "score": point.score} for point in strategy.shape]
    return {
        "ignoredResources": list(args.ignored_resources),
        "ignoredResourceGroups": list(args.ignored_resource_groups),
        "scoringStrategy": {
            "type": strategy.type,
            "resources": _resources(strategy.resources),
            **({"requestedToCapacityRatio": {"shape": shape}} if shape else {}),
        },
    }


def _resources(resources: tuple[ResourceWeight, ...]) -> list[_Fields]:
    return [{"name": resource.name, "weight": resource.weight} for resource in resources]


def _constraint(constraint: DefaultConstraint) -> _Fields:
    optional: _Fields = {
        "minDomains": constraint.min_domains,
        "nodeAffinityPolicy": constraint.node_affinity_policy,
        "nodeTaintsPolicy": constraint.node_taints_policy,
        "matchLabelKeys": list(constraint.match_label_keys) or None,
    }
    return {
        "maxSkew": constraint.max_skew,
        "topologyKey": constraint.topology_key,
        "whenUnsatisfiable": constraint.when_unsatisfiable,
        **{name: value for name, value in optional.items() if value is not None},
    }
