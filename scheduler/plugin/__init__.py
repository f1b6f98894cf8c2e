"""
The plugin contract: everything that a rule of one's own imports. `scheduler/plugin/README.md` is its page.

    from affinity_scheduler.plugin import SKIP, PodMatcher, RuleFilter, unschedulable

It is the contract of the built-in plugins. A plugin that is written for a version of it runs on every later scheduler
with the same `CONTRACT_VERSION`; names may be added within a version, and none is removed or changes its meaning. Names
that are not in `__all__` belong to the scheduler and may change at any time.
"""

from scheduler.framework.events import Action, ClusterEventWithHint, Hint, Resource, queue_if
from scheduler.framework.explaining import ExplainContext, PluginExplanation
from scheduler.framework.interface import (
    FeasibleNodes,
    FinalScores,
    PodContext,
    PreFiltered,
    PreFilterResult,
    PreScored,
    RuleFilter,
)
from scheduler.framework.memo import MemoBySpec
from scheduler.framework.normalizing import MAX_NODE_SCORE, default_normalized
from scheduler.framework.out_of_tree import CONTRACT_VERSION
from scheduler.framework.plugin_context import PluginContext
from scheduler.framework.status import SKIP, NodeStatuses, Status, failed, unresolvable, unschedulable
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod
from scheduler.model.volumes import StorageKind
from scheduler.plugin.args import Args
from scheduler.plugin.node_by_node import NodeByNode
from scheduler.state.columns import LabelColumn, PerDomain
from scheduler.state.matching import PodMatcher
from scheduler.state.read_only import ReadOnlyClusterView as ClusterView
from scheduler.state.read_only_views import NodeView

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
    "default_normalized",
    "failed",
    "queue_if",
    "unresolvable",
    "unschedulable",
]
