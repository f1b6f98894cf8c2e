"""How often each kind of write is sent, and after which pauses."""

from __future__ import annotations

import pytest

from scheduler.daemon.writes.sending import (
    CLAIM,
    CONDITION,
    DELETION,
    EVENT,
    SETTLED,
    VICTIM_CONDITION,
    Policy,
    Sender,
)
from scheduler.errors import ApiError, Conflict, Forbidden, ServerFault, Throttled, Unreachable
from tests.support.scripted_server import FakeSleep, client_of, scripted

BUSY = Throttled(429, "TooManyRequests", "busy")
CONFLICT = Conflict(409, "Conflict", "modified")
REFUSED = Unreachable(0, "ConnectionRefused", "nothing listens")
LOST = Unreachable(0, "ConnectionLost", "reset", took_effect_unknown=True)
FAULT = ServerFault(500, "InternalError", "etcd", took_effect_unknown=True)
TIMEOUT = ServerFault(504, "Timeout", "late", took_effect_unknown=True)
FORBIDDEN = Forbidden(403, "Forbidden", "no right")

_DOUBLED = [0.1, 0.2, 0.4, 0.8]
_UPSTREAM = [0.011, 0.055, 0.275]

#: The pauses with all of the jitter; none if the request is not repeated.
PAUSES = {
    "a bind that the server is too busy for": (SETTLED, BUSY, _DOUBLED),
    "a bind that a read has shown to be without an effect": (SETTLED, LOST, _DOUBLED),
    "a bind that conflicts": (SETTLED, CONFLICT, []),
    "a claim that has changed": (CLAIM, CONFLICT, [0.02] * 4),
    "a claim without an answer": (CLAIM, LOST, _DOUBLED),
    "a claim that must not be written": (CLAIM, FORBIDDEN, []),
    "a victim's condition that has changed": (VICTIM_CONDITION, CONFLICT, _DOUBLED),
    "a deletion without an answer": (DELETION, TIMEOUT, _DOUBLED),
    "a deletion that is denied": (DELETION, CONFLICT, []),
    "a pod's condition that has changed": (CONDITION, CONFLICT, _UPSTREAM),
    "a pod's condition, and etcd has no leader": (CONDITION, FAULT, _UPSTREAM),
    "a pod's condition, and nothing listens": (CONDITION, REFUSED, _UPSTREAM),
    "a pod's condition without an answer": (CONDITION, LOST, []),
    "a pod's condition that the server is late for": (CONDITION, TIMEOUT, []),
    "an event without an answer": (EVENT, LOST, [12.5] * 11),
    "an event that the server is too busy for": (EVENT, BUSY, []),
}


@pytest.mark.parametrize(("policy", "error", "pauses"), PAUSES.values(), ids=PAUSES)
async def test_every_kind_of_write_has_its_tries_and_pauses(
    policy: Policy, error: ApiError, pauses: list[float]
) -> None:
    sleep, numbers = FakeSleep(), list[int]()

    async def attempt(number: int) -> None:
        numbers.append(number)
        raise error

    async with scripted() as script, client_of(script) as client:
        assert await Sender(client, sleep=sleep, jitter=lambda: 1.0).repeat(policy, attempt) is error
    assert sleep.slept_s == pytest.approx(pauses)
    assert numbers == list(range(1, len(pauses) + 2))
