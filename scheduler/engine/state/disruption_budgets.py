"""PodDisruptionBudgets by namespace."""

from __future__ import annotations

from collections.abc import Collection

from scheduler.engine.model.disruption_budgets import DisruptionBudget
from scheduler.engine.state.object_table import ObjectTable


class DisruptionBudgets(ObjectTable[DisruptionBudget]):
    """All budgets."""

    def within(self, namespace: str) -> Collection[DisruptionBudget]:
        """Return the budgets of the namespace."""
        return self.of_kind(DisruptionBudget.kind, namespace)
