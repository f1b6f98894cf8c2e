"""What a leader leaves in the Lease for its successor."""

from __future__ import annotations

import json

import msgspec
import pytest

from scheduler.daemon.kube.requests import LeaseSpec
from scheduler.daemon.kube.responses import Lease
from scheduler.daemon.loop.leader_election import handover_of, with_handover

METADATA = msgspec.Raw(
    b'{"name":"l","resourceVersion":"7","labels":{"a":"b"},"annotations":{"other":"stays"},"managedFields":[{}]}'
)
RELEASED = LeaseSpec(holder_identity="", lease_transitions=3)


def test_the_successor_reads_what_the_leader_left() -> None:
    """Everything else in the metadata is sent back as it was read."""
    metadata = with_handover(Lease(METADATA, LeaseSpec(holder_identity="me", lease_transitions=3)), "41")
    assert handover_of(Lease(metadata, RELEASED)) == "41"
    before, after = json.loads(bytes(METADATA)), json.loads(bytes(metadata))
    assert after["annotations"].pop("affinity-scheduler.io/bound-until") == "3 41"
    assert after == before


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(
            LeaseSpec(holder_identity="me", lease_transitions=3), id="not released: its holder died"
        ),
        pytest.param(LeaseSpec(lease_transitions=4), id="a later holder released it and left none"),
        pytest.param(LeaseSpec(), id="a Lease of somebody who counts no transitions"),
    ],
)
def test_a_version_of_another_release_does_not_count(spec: LeaseSpec) -> None:
    """A successor that believed it could miss binds."""
    assert handover_of(Lease(with_handover(Lease(METADATA, RELEASED), "41"), spec)) == ""


def test_a_leader_without_a_version_changes_nothing() -> None:
    assert with_handover(Lease(METADATA, RELEASED), "") == METADATA
    assert handover_of(Lease(METADATA, RELEASED)) == ""
    assert handover_of(Lease(msgspec.Raw(b"{}"), LeaseSpec())) == ""
