"""Events of the enforcer on a pod name no object of another namespace; the log does."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from scheduler.daemon.kube.event_series import EventKey
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.writes.recorder import EventRecorder
from scheduler.engine.model.pod_groups import GroupKey, GroupKind
from scheduler.engine.model.pods import Pod
from scheduler.tools.enforcer.evictor import EvictionOutcome
from scheduler.tools.enforcer.instructions import (
    Evict,
    EvictionResult,
    Move,
    ReportViolation,
    ViolationCause,
    ViolationReport,
)
from scheduler.tools.enforcer.metrics import EnforcementMetrics
from scheduler.tools.enforcer.reports import EnforcementReporter
from tests.support import build
from tests.support.json_cluster import decoded

EVICTED = EvictionOutcome(EvictionResult.EVICTED, "")


class _Recorded:
    """Keeps what an `EventRecorder` is given."""

    def __init__(self) -> None:
        self.events: list[tuple[EventKey, str]] = []

    def record(self, key: EventKey, note: str) -> None:
        self.events.append((key, note))


def _reporter(recorded: _Recorded) -> EnforcementReporter:
    log = Logger(logging.Logger("enforcer", level=logging.CRITICAL))
    return EnforcementReporter(EnforcementMetrics(version="v"), log, cast(EventRecorder, recorded))


def _pod(namespace: str, name: str) -> Pod:
    return decoded(build.pod(name, namespace=namespace, node="n"))


def _told(recorded: _Recorded) -> tuple[str, str]:
    """Return the note of the only event, and the name of its related object."""
    ((key, note),) = recorded.events
    return note, "" if key.related is None else key.related.name


@pytest.mark.parametrize("other", ["shop", "secret"])
def test_events_name_no_object_of_another_namespace(other: str) -> None:
    pod, is_own = _pod("shop", "web"), other == "shop"
    report = ViolationReport(
        "anti-affinity", True, "anti-affinity: no other pod", "zone=a", _pod(other, "db"), other
    )
    group = GroupKey(GroupKind.OWN, other, "train")
    move = Move(
        pod, "m", f"pod group {other}/train waits, and fits after: move {other}/db from n to m", group
    )
    notes = []
    for tell in ("violation", "eviction", "move"):
        recorded = _Recorded()
        reporter = _reporter(recorded)
        if tell == "violation":
            reporter.on_violation(ReportViolation(pod, report, ViolationCause.UNKNOWN))
        elif tell == "eviction":
            reporter.on_eviction_ended(Evict(pod, report), EVICTED)
        else:
            reporter.on_move_ended(move, EVICTED)
        note, related = _told(recorded)
        notes.append(note)
        assert related == ("db" if is_own and tell != "move" else "")
    assert (f"{other}/" in "".join(notes)) == is_own
    assert ("of another namespace" in notes[2]) != is_own
    assert ("no other pod" in notes[1]) == is_own


def test_an_event_says_that_a_rule_is_not_enforced() -> None:
    """As after a race with another scheduler: Kubernetes itself never checks again."""
    recorded, pod, other = _Recorded(), _pod("shop", "first"), _pod("shop", "second")
    report = ViolationReport("anti-affinity", False, "anti-affinity: no other pod", "zone=a", other, "shop")
    _reporter(recorded).on_violation(ReportViolation(pod, report, ViolationCause.PLACEMENT))
    told = "Required anti-affinity: no other pod: does not hold (it is not enforced, so no pod is evicted)"
    note, related = _told(recorded)
    assert note.startswith(f"{told} in zone=a, beside shop/second; a pod was placed here")
    assert related == "second"
    assert recorded.events[0][0].reason == "AffinityRuleBroken"


def test_an_event_says_why_a_pod_moves() -> None:
    recorded = _Recorded()
    _reporter(recorded).on_move_ended(Move(_pod("shop", "web"), "m", "its score is 40 higher"), EVICTED)
    assert _told(recorded)[0] == "Evicted to move from n to a better node such as m: its score is 40 higher"
