"""PodDisruptionBudgets by namespace."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from scheduler.engine.model.disruption_budgets import DisruptionBudget
from scheduler.engine.state.rule_guard import not_for_rules
from scheduler.engine.state.sparse_dicts import discard_entry

_NONE: Final[Mapping[str, DisruptionBudget]] = {}


class DisruptionBudgets:
    """All budgets. Exactly one writer: ClusterState."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, DisruptionBudget]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def __iter__(self) -> Iterator[DisruptionBudget]:
        return (budget for budgets in self._by_namespace.values() for budget in budgets.values())

    def copy(self) -> DisruptionBudgets:
        """Return a copy that changes on its own. O(budgets)."""
        copy = DisruptionBudgets()
        copy._by_namespace = {namespace: dict(budgets) for namespace, budgets in self._by_namespace.items()}
        return copy

    def seen(self, _kind: str, key: str) -> DisruptionBudget | None:
        """Return the budget of `namespace/name`, None if it is not known."""
        namespace, _, name = key.partition("/")
        return self._by_namespace.get(namespace, _NONE).get(name)

    @not_for_rules
    def upsert(self, budget: DisruptionBudget) -> None:
        """Take over the budget."""
        self._by_namespace.setdefault(budget.namespace, {})[budget.name] = budget

    @not_for_rules
    def remove(self, kind: str, key: str) -> None:
        """Forget the budget, if it is known."""
        if self.seen(kind, key) is not None:
            namespace, _, name = key.partition("/")
            discard_entry(self._by_namespace, namespace, name)

    def within(self, namespace: str) -> Collection[DisruptionBudget]:
        """Return the budgets of the namespace."""
        return self._by_namespace.get(namespace, _NONE).values()

    def namespaces(self) -> Collection[str]:
        """Return the namespaces that have a budget."""
        return self._by_namespace.keys()
