"""
Recomputes every index over the records, and compares the records with the state and the queue.

A forgotten cleanup shows here: at the teardown of tests with a machine, in chaos, and while the scheduler runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from scheduler.engine.core.pod_records import Phase, PodRecord, PodRecords
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.state.audit import Audit
from scheduler.engine.state.cluster import ClusterState

#: Records that one piece compares, and the most that are compared with the indexes all at once.
_RECORDS_PER_PIECE: Final = 500
_MOST_AT_ONCE: Final = 5_000


class MachineAudit:
    """Compares the state and the records in small pieces, round after round; they may change between two pieces."""

    def __init__(self, records: PodRecords, state: ClusterState, queue: PodQueue) -> None:
        self._records, self._state, self._queue = records, state, queue
        self._of_state = Audit(state)
        self._round: Iterator[PodRecord] = iter(())

    def step(self) -> list[str]:
        """Return the differences of the next piece, one line each."""
        texts = self._of_state.step()
        piece = list(islice(self._round, _RECORDS_PER_PIECE))
        for record in piece:
            if self._records.get(record.uid) is record:
                texts += _differences(record, self._records, self._state, self._queue)
        if not piece:
            records = list(self._records)
            self._round = iter(records)
            if len(records) <= _MOST_AT_ONCE:
                texts += _index_differences(self._records, self._state, self._queue)
        return texts


def differences(records: PodRecords, state: ClusterState, queue: PodQueue) -> list[str]:
    """Return where an index or the state differs from the records, one line each; empty if all agree. O(records)."""
    texts = [text for record in records for text in _differences(record, records, state, queue)]
    return [*texts, *_index_differences(records, state, queue)]


def _index_differences(records: PodRecords, state: ClusterState, queue: PodQueue) -> list[str]:
    texts: list[str] = []
    if (n_assumed := sum(record.phase.is_assumed for record in records)) != state.n_assumed:
        texts.append(f"{state.n_assumed} pods assumed in the state, {n_assumed} by their records")
    if (n_unanswered := sum(record.binding is not None for record in records)) != records.n_unanswered:
        texts.append(f"{records.n_unanswered} binds unanswered kept, {n_unanswered} recounted")
    texts += [
        f"{uid} is held for {holder}, for which no pod is evicted"
        for uid, holder in state.held_for_evictions.items()
        if (record := records.get(holder)) is None or record.preemption is None
    ]
    nominated = {pod.uid for _, pods in state.nominated.by_node() for pod in pods}
    waiting = {record.uid for record in records if record.phase is Phase.PENDING}
    for what, uids in (("nominated", nominated), ("in the queue", {queued.uid for queued in queue.pods()})):
        texts += [f"{uid} is {what}, and not pending" for uid in uids - waiting]
    members = {pod.uid for key in state.groups.listed() for pod in state.groups.pending(key)}
    shown = {record.uid for record in records if record.shown is not None and record.shown.group is not None}
    if members != shown:
        texts.append(f"pending members of groups differ: {sorted(members ^ shown)}")
    texts += [
        f"group {key.text} has its minimum on nodes, and does not count as placed"
        for key in state.groups.listed()
        if (n := state.groups.minimum_bound(key)) and not state.groups.is_whole(key, n)
    ]
    return texts


def _differences(
    record: PodRecord, records: PodRecords, state: ClusterState, queue: PodQueue
) -> Iterator[str]:
    phase, placed, queued = record.phase, state.placed.get(record.uid), queue.get(record.uid)
    if record.is_idle:
        yield f"{record.uid}: a record without content"
    if (record.shown is not None, record.binding is not None) != (phase.is_shown, phase.is_unanswered):
        yield f"{record.uid} is {phase.text}, which its record does not show"
    is_placed = phase in (Phase.PLACED, Phase.CONFIRMED)
    if (phase.is_assumed, is_placed) != (
        placed is not None and placed.assumed,
        placed is not None and not placed.assumed,
    ):
        yield f"{record.uid} is {phase.text}, which the state does not show"
    if queued is not None and queued.pod is not record.shown:
        yield f"{record.uid}: the queue has another version of it"
    preemption = record.preemption
    for uid in () if preemption is None else (*preemption.unanswered, *preemption.unseen):
        if (victim := records.get(uid)) is None or record.uid not in victim.preemptors:
            yield f"{record.uid} is not among the preemptors of its victim {uid}"
    for uid in record.preemptors:
        preemptor = records.get(uid)
        victim_of = None if preemptor is None else preemptor.preemption
        if victim_of is None or record.uid not in (*victim_of.unanswered, *victim_of.unseen):
            yield f"{record.uid} makes room for {uid}, which does not wait for it"
