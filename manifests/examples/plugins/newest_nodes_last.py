"""NewestNodesLast: fill old nodes first, so that the autoscaler finds the newest ones empty and takes them away."""

import numpy as np

from scheduler.plugin import FeasibleNodes, FinalScores, PodContext, PreScored, Snapshot


class NewestNodesLast:
    """Scores the oldest node with 100 and the newest with 0, by their rank. It refuses no node."""

    name = "NewestNodesLast"
    version = "1.0"

    def prescore(self, context: PodContext, snapshot: Snapshot, feasible: FeasibleNodes) -> PreScored:
        """Return the scores, which change only where a node comes or goes."""

        def scores() -> np.ndarray:
            nodes = [snapshot.view_at(row) for row in range(snapshot.n_rows)]
            # Texts in the order of time; a row without a node counts as the oldest.
            created = np.array(["" if node is None else node.created for node in nodes])
            times, rank = np.unique(created, return_inverse=True)
            return (100 - 100 * rank.reshape(-1) // max(1, len(times) - 1)).astype(np.int16)

        return FinalScores(snapshot.per_node("age", scores))
