"""CheaperNodes: prefer nodes that cost less, by an annotation of the node or by its instance type."""

import math

import numpy as np
from affinity_scheduler.plugin import (
    Args,
    ClusterView,
    FeasibleNodes,
    FinalScores,
    NodeView,
    PluginContext,
    PodContext,
    PreScored,
)

PRICE = "example.com/price-per-hour"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"


class CheaperNodesArgs(Args):
    """Prices by instance type, for nodes without the annotation, and the price of all other nodes."""

    price_by_instance_type: dict[str, float] = {}
    otherwise: float = 1.0


class CheaperNodes:
    """Scores the cheapest of the nodes that fit with 100 and the dearest with 0. It refuses no node."""

    name = "CheaperNodes"
    version = "1.0"
    args_type = CheaperNodesArgs
    node_annotations = (PRICE,)
    default_weight = 2

    def __init__(self, args: CheaperNodesArgs, context: PluginContext) -> None:
        self.args = args

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Return the scores: prices are read once, until a node or its annotation changes."""
        prices = view.per_node(
            "prices",
            lambda: np.array([self._price(view.view_at(row)) for row in range(view.n_rows)], np.float64),
        )
        lowest, highest = prices[feasible.mask].min(), prices[feasible.mask].max()
        if lowest == highest:
            return FinalScores(np.full(view.n_rows, 100, np.int16))
        share = np.clip((highest - prices) / (highest - lowest), 0, 1)
        return FinalScores((100 * share).round().astype(np.int16))

    def _price(self, node: NodeView | None) -> float:
        if node is None:
            return self.args.otherwise
        try:
            price = float(node.annotations[PRICE])
        except (KeyError, ValueError):
            price = math.nan
        if math.isfinite(price):
            return price
        instance_type = node.labels.get(INSTANCE_TYPE, "")
        return self.args.price_by_instance_type.get(instance_type, self.args.otherwise)
