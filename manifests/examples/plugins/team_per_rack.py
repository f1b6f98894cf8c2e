"""TeamPerRack: no rack gets more than a number of pods of one team."""

from affinity_scheduler.plugin import (
    Action,
    Args,
    ClusterEventWithHint,
    ClusterView,
    PluginContext,
    PodContext,
    PodMatcher,
    PreFiltered,
    Resource,
    RuleFilter,
    unschedulable,
)

FULL = unschedulable("node(s) had enough pods of the team in their rack")


class TeamPerRackArgs(Args):
    """The limit, the label of pods that names their team, and the label of nodes that names their rack."""

    most: int = 3
    label: str = "team"
    topology_key: str = "example.com/rack"

    def __post_init__(self) -> None:
        """Check the limit when the configuration is read."""
        if self.most < 1:
            raise ValueError(f"found most: {self.most}, expected at least 1")


class TeamPerRack:
    """Refuses the nodes of racks with enough pods of the pod's team. Nodes without a rack have no limit."""

    name = "TeamPerRack"
    version = "1.0"
    args_type = TeamPerRackArgs

    def __init__(self, args: TeamPerRackArgs, context: PluginContext) -> None:
        self.args = args
        self.only_pods_with_label = args.label

    def events_to_register(self) -> list[ClusterEventWithHint]:
        """Return a pod that goes or leaves its team, and a node that comes or moves to another rack."""
        return [
            ClusterEventWithHint(Resource.POD, Action.DELETE | Action.UPDATE_POD_LABEL),
            ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        ]

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Return the nodes whose rack has room: one count per rack, which is kept and not recounted."""
        team = PodMatcher.of({self.args.label: context.pod.labels[self.args.label]})
        per_rack = view.pods_by_domain(team, self.args.topology_key)
        return RuleFilter(view.n_rows, (~per_rack.at_least(self.args.most), FULL))
