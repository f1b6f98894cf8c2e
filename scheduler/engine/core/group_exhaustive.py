"""Whether a group has places at all: by bounds that prove that it has none, and by trying everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from scheduler.engine.core.decide import ScheduleResult
from scheduler.engine.core.group_attempt import Attempt, most_copies
from scheduler.engine.core.group_domains import domain_ids
from scheduler.engine.core.group_members import MemberKind, has_closed_form
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.state.arrays import Amounts, Mask
from scheduler.engine.state.batches import Pieces


@dataclass(slots=True)
class _Frame:
    """One level of the exhaustive search: the kinds to try, and the rows left for the first of them."""

    kinds: list[MemberKind]
    rows: Mask
    is_deferring: bool = False


def is_proven(attempt: Attempt) -> Pieces[bool]:
    """Return whether room by resources, or the greedy search, shows that there is no placement."""
    n_spare = len(attempt.request.members) - attempt.request.n_needed
    for kind in attempt.kinds:
        room = yield from _room_of(kind, attempt)
        part = attempt.request.parts.get(kind.part)
        keys = (() if part is None else part.topology.required) or attempt.request.topology.required
        most = int(domain_ids(keys, attempt.view.nodes).per_domain(room).max())
        if most < len(kind.pods) - n_spare:
            return True
    return (len(attempt.kinds) == 1 or _are_equal_parts(attempt)) and has_closed_form(
        attempt.kinds[0], attempt.view
    )


def _are_equal_parts(attempt: Attempt) -> bool:
    """Return whether parts are interchangeable: alike, atomic and without rules between pods."""
    parts, first = attempt.request.parts, attempt.kinds[0].first
    if not attempt.has_parts_alike() or len({kind.first.priority for kind in attempt.kinds}) > 1:
        return False
    if first.spec.affinity.required or first.spec.affinity.required_anti or first.spec.spread:
        return False
    are_atomic = all(parts[kind.part].n_needed == len(kind.pods) for kind in attempt.kinds)
    return are_atomic and not any(kind.first.generated_claims for kind in attempt.kinds)


def _room_of(kind: MemberKind, attempt: Attempt) -> Pieces[Amounts]:
    """Return an upper bound, by resources, of the members of the kind that each row takes."""
    n_pods, part = len(kind.pods), attempt.request.parts.get(kind.part)
    possible = attempt.request.rows if part is None else attempt.request.rows & part.rows
    decision = yield from attempt.assumed.deciding(kind.first, attempt.request.rows, attempt.siblings(kind))
    if isinstance(decision, FitError):
        is_final = decision.rejecting.isdisjoint(attempt.liftable)
        return np.where(possible, 0 if is_final else n_pods, 0)
    filtered = decision.scores.filtered
    accepted = decision.scores.feasible.mask.copy()
    for refusal in filtered.refusals:
        if refusal.plugin in attempt.liftable:
            accepted |= refusal.rows
    copies = most_copies(filtered.filters, attempt.view.n_rows)
    return np.where(possible & accepted, np.clip(copies, 0, n_pods), 0)


def exhaust(attempt: Attempt, scope: Mask) -> Pieces[bool]:
    """Try every order of kinds and every node of the scope, depth first, no assignment twice."""
    seen: set[Hashable] = set()
    assumed = attempt.assumed
    frames = [_Frame(list(attempt.kinds), scope.copy())]
    while frames:
        n_placed = attempt.n_placed
        is_enough = n_placed >= attempt.request.n_needed and attempt.has_whole_parts()
        if is_enough and (yield from assumed.is_settled()):
            if not attempt.request.parts:
                yield from attempt.fill(attempt.kinds, scope, is_partial=True)
            if not (yield from assumed.is_settled()):
                yield from attempt.take_back(n_placed)
            return True
        if not (yield from _advance(frames[-1], scope, attempt)):
            frames.pop()
            yield from attempt.take_back(max(0, len(frames) - 1))
            continue
        assignment = _assignment(attempt)
        if assignment in seen:
            yield from attempt.take_back(len(frames) - 1)
            continue
        seen.add(assignment)
        frames.append(_Frame([kind for kind in attempt.kinds if kind.left], scope.copy()))
    return False


def _advance(frame: _Frame, scope: Mask, attempt: Attempt) -> Pieces[bool]:
    """Place one more member in a way that the frame has not tried; return whether there was one."""
    while frame.kinds:
        kind = frame.kinds[0]
        siblings = attempt.siblings(kind) if frame.is_deferring else ()
        of_part = attempt.rows_of(kind)
        rows = frame.rows if of_part is None else frame.rows & of_part
        decision = yield from attempt.assumed.deciding(kind.left[0], rows, siblings)
        if isinstance(decision, ScheduleResult):
            frame.rows[decision.scores.chosen] = False
            attempt.place(kind, decision, is_owed=frame.is_deferring)
            yield
            return True
        yield
        if not frame.is_deferring and attempt.siblings(kind):
            frame.is_deferring = True
            continue
        frame.kinds.pop(0)
        frame.rows, frame.is_deferring = scope.copy(), False
    return False


def _assignment(attempt: Attempt) -> Hashable:
    places = (
        (id(attempt.kind_of[place.pod.uid]), place.node_name, place.is_owed)
        for place in attempt.assumed.places
    )
    return frozenset(Counter(places).items())
