"""
The plugin contract: everything that a rule of one's own imports. `scheduler/sdk/plugin/README.md` is its page.

    from affinity_scheduler.plugin import SKIP, PodMatcher, RuleFilter, unschedulable

It is the contract of the built-in plugins. A plugin that is written for a version of it runs on every later scheduler
with the same `CONTRACT_VERSION`; names may be added within a version, and none is removed or changes its meaning. Names
that are not in `__all__` belong to the scheduler and may change at any time.
"""

from scheduler.engine.framework.events import Action, ClusterEventWithHint, Hint, Resource, queue_if
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation, Where
from scheduler.engine.framework.interface import (
    MAX_NODE_SCORE,
    FeasibleNodes,
    FinalScores,
    PluginContext,
    PodContext,
    PreFiltered,
    PreFilterResult,
    PreScored,
    RuleFilter,
    default_normalized,
)
from scheduler.engine.framework.out_of_tree import CONTRACT_VERSION
from scheduler.engine.framework.status import SKIP, NodeStatuses, Status, failed, unresolvable, unschedulable
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import MemoBySpec, Pod
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import LabelColumn, PerDomain
from scheduler.engine.state.matching import PodMatcher
from scheduler.engine.state.node_view import NodeView
from scheduler.sdk.plugin.node_by_node import Args, NodeByNode

__all__ = [
    "CONTRACT_VERSION",
    "MAX_NODE_SCORE",
    "SKIP",
    "Action",
    "Args",
    "ClusterEventWithHint",
    "ClusterView",
    "ExplainContext",
    "FeasibleNodes",
    "FinalScores",
    "Hint",
    "LabelColumn",
    "MemoBySpec",
    "Node",
    "NodeByNode",
    "NodeStatuses",
    "NodeView",
    "PerDomain",
    "PluginContext",
    "PluginExplanation",
    "Pod",
    "PodContext",
    "PodMatcher",
    "PreFilterResult",
    "PreFiltered",
    "PreScored",
    "Resource",
    "RuleFilter",
    "Status",
    "StorageKind",
    "Where",
    "default_normalized",
    "failed",
    "queue_if",
    "unresolvable",
    "unschedulable",
]
