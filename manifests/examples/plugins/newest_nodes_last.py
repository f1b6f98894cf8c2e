"""NewestNodesLast: fill old nodes first, so that the autoscaler finds the newest ones empty and takes them away."""

import numpy as np
from affinity_scheduler.plugin import ClusterView, FeasibleNodes, FinalScores, PodContext, PreScored


class NewestNodesLast:
    """Scores the oldest node with 100 and the newest with 0, by their rank. It refuses no node."""

    name = "NewestNodesLast"
    version = "1.0"

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Return the scores, which change only where a node comes or goes."""

        def scores() -> np.ndarray:
            # A row may have no node. Texts are in the order of time.
            nodes = [view.view_at(row) for row in np.flatnonzero(view.alive).tolist()]
            times, rank = np.unique([node.created for node in nodes if node], return_inverse=True)
            scores = np.zeros(view.n_rows, np.int16)
            scores[view.alive] = 100 - 100 * rank.reshape(-1) // max(1, len(times) - 1)
            return scores

        return FinalScores(view.per_node("age", scores))
