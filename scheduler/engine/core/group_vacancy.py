"""
Pods that are out of the real state for a while, so that the places of a group are searched without them.

Everything is put back. Meanwhile nothing else may read or change the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from scheduler.engine.core.assumed_places import AssumedPlaces
from scheduler.engine.core.group_attempt import Outcome, SearchRequest
from scheduler.engine.core.group_devices import FreedClaims
from scheduler.engine.core.group_search import search
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster import ClusterState, PlacedPod


class Vacancy:
    """The pods that are out. `claims`: of pods that are gone or out; their devices count as free."""

    def __init__(self, state: ClusterState, claims: FreedClaims) -> None:
        self._state, self._claims = state, claims
        self._out: dict[str, PlacedPod] = {}

    def __len__(self) -> int:
        """Return the number of pods that are out."""
        return len(self._out)

    def is_out(self, placed: PlacedPod) -> bool:
        """Return whether the pod is out."""
        return placed.pod.uid in self._out

    def take_out(self, unit: Iterable[PlacedPod]) -> None:
        """Take these pods off their nodes."""
        for placed in unit:
            uid = placed.pod.uid
            self._out[uid] = placed
            with self._state.groups.with_notes_kept(placed.pod):
                if placed.assumed:
                    self._state.forget(uid)
                else:
                    self._state.remove_pod(uid)
            self._claims.free(self._state.devices.claims_of(placed.pod))

    def put_back(self, unit: Iterable[PlacedPod]) -> None:
        """Put these pods back on their nodes."""
        for placed in unit:
            del self._out[placed.pod.uid]
            self._claims.take_back(placed.pod)
            if placed.assumed:
                self._state.assume(placed.pod, placed.pod.node_name)
            else:
                self._state.upsert_pod(placed.pod)

    def put_all_back(self) -> Pieces[None]:
        """Put back every pod that is still out; yield after each."""
        for placed in list(self._out.values()):
            self.put_back((placed,))
            yield

    @contextmanager
    def without(self, unit: Iterable[PlacedPod]) -> Iterator[None]:
        """Have these pods out within the block."""
        pods = list(unit)
        self.take_out(pods)
        try:
            yield
        finally:
            self.put_back(pods)


def search_places(
    request: SearchRequest, assumed: AssumedPlaces
) -> Pieces[tuple[Outcome, dict[str, str] | None]]:
    """Return what a search finds, and the nodes of the members by UID, None without places; take the places back."""
    outcome = yield from search(request, assumed)
    nodes = {place.pod.uid: place.node_name for place in assumed.places}
    yield from assumed.take_all_back()
    return outcome, nodes if outcome.is_placed else None
