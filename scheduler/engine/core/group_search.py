"""
Searches a place for every member of a group; each place that is found is assumed.

    greedy      in the tightest domains first: `group_greedy`; of a group with parts, one part after the other:
                `group_parts`
    as many     if the group needs fewer than it has: as many as fit, where most do
    exhaustive  every order of kinds and every node: `group_exhaustive`; skipped where greedy is a proof
    in turn     a member comes after those that its required affinity needs: `AssumedPlaces.line_up`
    in order    members that are alike exchange their places, so that neighbours in rank are near: `group_order`

A placement is valid if there is an order in which every member passes every filter; required affinity may also be met
by a member that comes later. The exhaustive search finds one if there is one, unless it runs out of decisions, which
the message then says. The same state and the same members give the same places.
"""

from __future__ import annotations

from scheduler.engine.core.assumed_places import AssumedPlaces, CycleBrokenError, OutOfDecisionsError
from scheduler.engine.core.group_attempt import Attempt, Outcome, SearchRequest
from scheduler.engine.core.group_greedy import GreedySearch
from scheduler.engine.core.group_members import components_of, kinds_of
from scheduler.engine.core.group_order import lay_out_ranks
from scheduler.engine.core.group_parts import PartSearch
from scheduler.engine.state.batches import Pieces


def search(request: SearchRequest, assumed: AssumedPlaces) -> Pieces[Outcome]:
    """
    Place at least `n_needed` of the members, and as many as it can.

    `assumed`: without places; has the places afterwards if the outcome `is_placed`, none otherwise.
    """
    if len(request.members) < request.n_needed:
        return Outcome()
    kinds = yield from kinds_of(request.members, assumed.view)
    components = yield from components_of(kinds, assumed.view)
    attempt = Attempt(request, assumed, kinds)
    searching = PartSearch(attempt, components) if request.parts else GreedySearch(attempt, components)
    outcome = attempt.outcome
    try:
        outcome.is_placed = yield from searching.run()
        if outcome.is_placed:
            yield from assumed.line_up()
            yield from lay_out_ranks(attempt)
    except OutOfDecisionsError:
        outcome.is_cut_short = True
    except CycleBrokenError as broken:
        outcome.error = broken.error
    outcome.n_decisions = assumed.n_decisions
    if not outcome.is_placed:
        yield from attempt.end()
    return outcome
