"""
Finds the smallest changes that let a pod schedule.

Repairs propose changes for the nodes that need fewest. Each proposal is tried with one decision, and changes that are
not needed are removed. The numbers of nodes and proposals are bounded, whatever the cluster's size. A proposal that the
decision does not confirm is not an error: repairs look at one plugin at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from typing import Final, get_args

import numpy as np

from scheduler.engine.framework.explaining import ExplainContext, Repair
from scheduler.engine.model.changes import AddRoom, Change, Changes, RemovePod, RollOutInPlace
from scheduler.engine.model.revisions import deployment_of, is_other_revision
from scheduler.engine.state.arrays import Fractions, Mask
from scheduler.engine.syntax.words import first_names
from scheduler.tools.explain.formats.explanation import Suggestion
from scheduler.tools.explain.inspection import Inspection
from scheduler.tools.explain.rule_repairs import rule_repair
from scheduler.tools.explain.sentences import change_text

_MAX_SUGGESTIONS: Final = 5
#: Nodes to propose repairs for, and the most of them that are refused alike.
_MAX_NODES: Final = 48
_MAX_ALIKE: Final = 2
#: Combinations of the plugins' alternatives per node.
_MAX_COMBINATIONS: Final = 6
#: Proposals to try.
_MAX_TRIED: Final = 60
#: Size of a proposal up to which each change is tried without.
_MAX_PRUNED: Final = 12
#: Nodes that get more room by one suggestion: more is no small change.
_MOST_GROWN: Final = 3

_RANK: Final = {change: rank for rank, change in enumerate(get_args(Change))}


def proposals(
    inspection: Inspection, avoided_nodes: Collection[str] = (), within: Mask | None = None
) -> list[Changes]:
    """Return the changes to try, the smallest first: none for a node that is avoided, or outside `within`, if given."""
    # Proposals for all nodes are few; without this order those for single nodes could use up the number to try.
    size = partial(_size, inspection.context)
    for_all = sorted(set(_for_all_nodes(inspection)), key=size)
    for_nodes = sorted(set(_for_nodes(inspection, avoided_nodes, within)), key=size)
    return [*for_all, *for_nodes][:_MAX_TRIED]


def find_suggestions(
    context: ExplainContext,
    proposed: Sequence[Changes],
    node_after: Callable[[Changes], str | None],
    on_step: Callable[[str], None],
    avoided_nodes: Collection[str],
    *,
    completed: Callable[[Changes], Changes | None] = lambda changes: changes,
    pod_text: str = "the pod",
) -> tuple[Suggestion, ...]:
    """
    Return up to five suggestions, each confirmed by a decision, of different kinds if possible, smallest first.

    Those that a PodDisruptionBudget refuses are the last. None leads to a node of `avoided_nodes`. `node_after`:
    returns the pod's node once the changes are made on a copy of the cluster; None without one. `completed`: returns
    the changes with others of their types that are needed beside them; None if none are found.
    """
    confirmed: list[Suggestion] = []
    n_confirmed = Counter[frozenset[type[Change]]]()
    for number, proposal in enumerate(proposed, 1):
        on_step(f"trying change {number} of {len(proposed)} on a copy of the cluster")
        known = [frozenset(suggestion.changes) for suggestion in confirmed]
        shape = frozenset(map(type, proposal))
        if n_confirmed[shape] >= _MAX_SUGGESTIONS or any(other <= frozenset(proposal) for other in known):
            continue
        changes = completed(proposal)
        grown = {each.node for each in changes or () if isinstance(each, AddRoom)}
        if changes is None or len(grown) > _MOST_GROWN or (node := node_after(changes)) is None:
            continue
        needed, node = _pruned(changes, node, node_after)
        if node not in avoided_nodes and frozenset(needed) not in known:
            texts = tuple(change_text(change, pod_text) for change in needed)
            confirmed.append(Suggestion(needed, node, texts))
            n_confirmed[frozenset(map(type, needed))] += 1
    if any(isinstance(change, RollOutInPlace) for suggestion in confirmed for change in suggestion.changes):
        # Which old pod leaves, and when, is then the controller's matter.
        confirmed = [each for each in confirmed if not _takes_old_pods(context, each.changes)]
    return tuple(_vary(confirmed, context))


def _pruned(changes: Changes, node: str, node_after: Callable[[Changes], str | None]) -> tuple[Changes, str]:
    """Return the changes that are needed, and the pod's node after these."""
    needed: Changes = changes
    before: Changes = ()
    while 1 < len(changes) <= _MAX_PRUNED and needed != before:
        before = needed  # one may be needed only because of another one that is removed later
        for change in before:
            fewer = tuple(other for other in needed if other != change)
            node_with_fewer = node_after(fewer) if fewer else None
            if node_with_fewer is not None:
                needed, node = fewer, node_with_fewer
    return needed, node


def _takes_old_pods(context: ExplainContext, changes: Changes) -> bool:
    """Return whether the changes only take pods of other revisions of the pod's Deployment away."""
    leaving = [context.placed(change.uid) if isinstance(change, RemovePod) else None for change in changes]
    return all(placed is not None and is_other_revision(context.pod, placed[0]) for placed in leaving)


def held_notes(suggestions: Iterable[Suggestion], context: ExplainContext) -> Iterator[str]:
    """Yield a note for each PodDisruptionBudget that refuses the eviction of pods which the suggestions take away."""
    by_budget: dict[str, set[str]] = {}
    for change in (change for suggestion in suggestions for change in suggestion.changes):
        if isinstance(change, RemovePod) and (held_by := _held_by(context, change)):
            by_budget.setdefault(held_by, set()).add(f"{change.namespace}/{change.pod}")
    for held_by, pods in by_budget.items():
        yield f"PodDisruptionBudget {held_by} refuses the eviction of {first_names(sorted(pods))} now"


def _held_by(context: ExplainContext, change: Change) -> str:
    """Return the budget that refuses the eviction which the change is; empty for another change."""
    placed = context.placed(change.uid) if isinstance(change, RemovePod) else None
    return "" if placed is None else context.held_by(placed[0])


def _size(context: ExplainContext, changes: Changes) -> tuple[bool, int, int, str]:
    """Return the order of changes: those that a budget refuses are the last."""
    is_held = any(_held_by(context, change) for change in changes)
    return is_held, len(changes), sum(_RANK[type(change)] for change in changes), repr(changes)


def _vary(confirmed: Iterable[Suggestion], context: ExplainContext) -> list[Suggestion]:
    """
    Return the suggestions to show, by size: the smallest of each combination of change types, then further ones.

    A suggestion is dropped if it has all change types of a smaller one and more: it is the same remedy elsewhere.
    """

    def size(suggestion: Suggestion) -> tuple[bool, int, int, str]:
        return _size(context, suggestion.changes)

    first: list[Suggestion] = []
    more: list[Suggestion] = []
    seen: list[frozenset[type[Change]]] = []
    for suggestion in sorted(confirmed, key=size):
        shape = frozenset(map(type, suggestion.changes))
        if any(smaller < shape for smaller in seen):
            continue
        (more if shape in seen else first).append(suggestion)
        seen.append(shape)
    return sorted((first + more)[:_MAX_SUGGESTIONS], key=size)


def _for_all_nodes(inspection: Inspection) -> Iterator[Changes]:
    """Yield the plugins' proposals that concern no single node; and that of a rollout which lacks room for a surge."""
    pod = inspection.context.pod
    if any(is_other_revision(pod, other) for other in inspection.context.placed_pods()):
        yield (RollOutInPlace(pod.namespace, deployment_of(pod)),)
    for explanation in inspection.explanations.values():
        if explanation.proposals is not None:
            yield from explanation.proposals()


def _for_nodes(
    inspection: Inspection, avoided_nodes: Collection[str], within: Mask | None
) -> Iterator[Changes]:
    """Yield proposals for the nodes that need the fewest changes, a few for each combination of refusals."""
    repairs: dict[str, Repair] = {}
    for name, explanation in inspection.explanations.items():
        rules = explanation.rules
        repair = rule_repair(inspection.context, rules) if rules else explanation.repair
        if repair is not None:
            repairs[name] = repair
    alive = inspection.context.view.alive
    effort = np.where(alive if within is None else alive & within, 0.0, np.inf)
    for plugin, statuses in inspection.refusals:
        rows = np.flatnonzero(alive & (statuses.codes != 0))
        effort[rows] += repairs[plugin.name].effort(rows) if plugin.name in repairs else np.inf
    row_by_name = inspection.context.view.nodes.row_by_name
    effort[[row_by_name[name] for name in avoided_nodes if name in row_by_name]] = np.inf
    for row in _rows(inspection, effort):
        refusing = [plugin.name for plugin, statuses in inspection.refusals if statuses.codes[row]]
        yield from _for_node(row, [repairs[name] for name in refusing])


def _rows(inspection: Inspection, effort: Fractions) -> Iterator[int]:
    """Yield rows by effort, few that have the same reasons, taints and domains."""
    n_alike: Counter[tuple[int, ...]] = Counter()
    taint_set = inspection.context.view.nodes.taint_set
    # Thousands of rules share a few columns.
    columns = {
        id(rule.column): rule.column for rule in inspection.rules if not rule.column.is_unique
    }.values()
    n_found = 0
    for row in np.argsort(effort, kind="stable").tolist():
        if n_found >= _MAX_NODES or effort[row] == np.inf:
            return
        likeness = (
            *(int(statuses.codes[row]) for _, statuses in inspection.refusals),
            int(taint_set[row]),
            *(int(column.ids[row]) for column in columns),
        )
        n_alike[likeness] += 1
        if n_alike[likeness] <= _MAX_ALIKE and effort[row] > 0:
            n_found += 1
            yield row


def _for_node(row: int, repairs: Sequence[Repair]) -> Iterator[Changes]:
    """Yield combinations of one alternative per plugin that refuses the row; none if a plugin has no alternative."""
    alternatives = [repair.alternatives(row) for repair in repairs]
    for combination in islice(product(*alternatives), _MAX_COMBINATIONS):
        changes = tuple(dict.fromkeys(change for part in combination for change in part))
        if changes:
            yield changes
