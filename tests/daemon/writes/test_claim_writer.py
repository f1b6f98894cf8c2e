"""Writes of claims: pods that share a claim write together, and a created claim is found again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from scheduler.daemon.kube.requests import Request
from scheduler.daemon.writes.reservation_writer import ReservationWriter
from scheduler.daemon.writes.sending import Sender
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.claim_writes import ClaimDeletion, ClaimReservation, ContainerRequest
from scheduler.engine.model.device_requests import DeviceQuery, DeviceRequest, ResourceClaim
from scheduler.engine.model.devices import MAX_CONSUMERS, DeviceKind
from scheduler.engine.model.instructions import WriteObjects, WriteReservation
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import ReservationWritten
from scheduler.engine.plugins.dynamic_resources.extended_resources import special_claim
from scheduler.engine.state.devices import Devices
from scheduler.errors import Unreachable
from tests.support import build
from tests.support.build import Json
from tests.support.claim_server import ClaimServer
from tests.support.device_documents import DRIVER, device_class, resource_claim
from tests.support.driving import Driver
from tests.support.scripted_server import FakeSleep


class _Server(ClaimServer):
    """A server that answers in a later turn of the event loop; `loses` tells which answers are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[str] = []
        self.loses: Callable[[int], bool] = lambda _: False

    async def request(
        self, request: Request, *, timeout_s: float, may_send: Callable[[], bool] = lambda: True
    ) -> bytes:
        self.requests.append(request.verb)
        number = len(self.requests)
        await asyncio.sleep(0)
        answer = await super().request(request, timeout_s=timeout_s, may_send=may_send)
        await asyncio.sleep(0)
        if self.loses(number):
            raise Unreachable(0, "Unreachable", "connection reset", took_effect_unknown=True)
        return answer

    def shown(self, name: str) -> ResourceClaim:
        claim = KINDS[DeviceKind.CLAIM].decode(json.dumps(self.claims[f"default/{name}"]).encode())
        assert isinstance(claim, ResourceClaim)
        return claim

    def reserved(self, name: str) -> list[str]:
        return [each.name for each in self.shown(name).reserved_for]


def _allocation(device: str = "gpu-0", **share: str) -> Any:
    result = {"request": "r", "driver": DRIVER, "pool": "a", "device": device, **share}
    return {"devices": {"results": [result]}}


def _decided(device: str = "gpu-0", **share: str) -> Allocation:
    server = _Server()
    server.put(resource_claim("c", allocation=_allocation(device, **share)))
    allocation = server.shown("c").allocation
    assert allocation is not None
    return allocation


def _allocated() -> _Server:
    """Return a server with an allocated claim."""
    server = _Server()
    server.put(
        resource_claim("c", allocation={**_allocation(), "allocationTimestamp": "2026-01-01T00:00:00Z"})
    )
    return server


def _pods(n_pods: int) -> list[Pod]:
    driver = Driver()
    return [driver.decoded(build.pod(f"p{number}")) for number in range(n_pods)]


def _writer(server: _Server) -> ReservationWriter:
    return ReservationWriter(Sender(server, sleep=FakeSleep()))  # type: ignore[arg-type]  # it answers its requests


async def _reserved(server: _Server, writes: Sequence[ClaimReservation]) -> list[ReservationWritten]:
    writer = _writer(server)
    instructions = (WriteReservation(write.pod, "a", (write,)) for write in writes)
    answers = await asyncio.gather(*map(writer.write, instructions))
    assert not writer._claims._turns, "turns end with the last pod that waits"
    return answers


async def _problems(server: _Server, n_pods: int) -> list[str]:
    """Return why pods p0, p1 and so on could not reserve the claim c; empty for those that could."""
    claim = server.shown("c")
    writes = [ClaimReservation(claim, pod, None) for pod in _pods(n_pods)]
    return [answer.problem for answer in await _reserved(server, writes)]


def _names(n_pods: int) -> list[str]:
    return sorted(f"p{number}" for number in range(n_pods))


async def test_the_pods_of_one_claim_are_reserved_by_two_writes() -> None:
    """The first pod's, and one of all that came meanwhile; before, most of them failed on conflicts."""
    server = _allocated()
    claim, pods = server.shown("c"), _pods(MAX_CONSUMERS)
    answers = await _reserved(server, [ClaimReservation(claim, pod, None) for pod in pods])
    assert [answer.problem for answer in answers] == [""] * MAX_CONSUMERS
    assert len(server.requests) <= 2
    assert sorted(server.reserved("c")) == _names(MAX_CONSUMERS)
    assert {answer.versions for answer in answers} <= {("2",), ("3",)}


P0 = {"resource": "pods", "name": "p0", "uid": _pods(1)[0].uid}
STATUSES: dict[str, Json] = {
    "not allocated": {},
    "with the same devices": {"allocation": _allocation()},
    "with the same devices, and reserved for the pod": {"allocation": _allocation(), "reservedFor": [P0]},
}


@pytest.mark.parametrize("status", STATUSES.values(), ids=STATUSES)
async def test_another_claim_of_the_name_is_not_written(status: Json) -> None:
    """It was not decided for; what the pod shall use of it, another decision says."""
    server = _Server()
    server.put(resource_claim("c"))
    claim = server.shown("c")
    replaced = resource_claim("c", **status)
    replaced["metadata"]["uid"] = "another"
    server.put(replaced)
    answers = await _reserved(server, [ClaimReservation(claim, pod, _decided()) for pod in _pods(3)])
    assert {answer.problem for answer in answers} == {"claim default/c got deleted in the meantime"}
    assert server.writes == []


async def test_one_pod_too_many_fails_alone() -> None:
    (problem,) = filter(None, await _problems(_allocated(), MAX_CONSUMERS + 1))
    assert "Too many: 257" in problem


async def test_a_pod_that_was_decided_with_other_devices_is_not_written_along() -> None:
    server = _Server()
    server.put(resource_claim("c"))
    claim = server.shown("c")
    share = "00000000-0000-4000-8000-000000000001"
    decided = (_decided(), _decided("gpu-1"), _decided(), _decided(shareID=share))
    writes = [ClaimReservation(claim, *each) for each in zip(_pods(4), decided, strict=True)]
    problem = "claim default/c got allocated elsewhere in the meantime"
    assert [answer.problem for answer in await _reserved(server, writes)] == ["", problem, "", problem]
    assert server.reserved("c") == ["p0", "p2"]
    assert server.claims["default/c"]["status"]["allocation"]["allocationTimestamp"]


async def test_pods_that_were_written_along_share_the_fate_of_the_write() -> None:
    """No answer comes: every pod is told after the tries of one, and not each after tries of its own."""
    server = _allocated()
    server.loses = lambda _: True
    assert all("connection reset" in problem for problem in await _problems(server, 50))
    assert len(server.requests) < 50


async def test_answers_that_are_lost_reserve_every_pod_once() -> None:
    server = _allocated()
    server.loses = lambda number: number % 3 == 1
    assert await _problems(server, 20) == [""] * 20
    assert sorted(server.reserved("c")) == _names(20)


def _special(pod: Pod, count: int = 1) -> ClaimReservation:
    """Return the write of the claim for the pod's extended resource."""
    devices = Devices()
    document = {**device_class("gpu", "example.com/gpu")}
    document["metadata"] = {**document["metadata"], "resourceVersion": "1"}
    devices.upsert(KINDS[DeviceKind.CLASS].decode(json.dumps(document).encode()))
    claim = special_claim(pod, {"example.com/gpu": count}, devices)
    assert claim is not None
    query = DeviceQuery(name="container-0-request-0", class_name="gpu", count=count)
    request = DeviceRequest("container-0-request-0", query)
    mappings = (ContainerRequest("c", "example.com/gpu", request.name),)
    return ClaimReservation(replace(claim, requests=(request,)), pod, _decided(), mappings)


@pytest.mark.parametrize("is_read", [True, False])
async def test_a_claim_whose_creation_lost_its_answer_is_used(is_read: bool) -> None:
    """By the same attempt, or by the pod's next one if it cannot be read at once."""
    (pod,) = _pods(1)
    server = _Server()
    server.loses = lambda number: number <= (1 if is_read else 2)
    (answer,) = await _reserved(server, [_special(pod)])
    assert bool(answer.problem) is not is_read
    if not is_read:
        (answer,) = await _reserved(server, [_special(pod)])
        assert answer.problem == ""
    ((key, claim),) = server.claims.items()
    assert key.startswith("default/p0-extended-resources-")
    assert [each["name"] for each in claim["status"]["reservedFor"]] == ["p0"]
    assert claim["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p0", "uid": pod.uid, "controller": True}
    ]
    assert server.pod_patches[-1]["extendedResourceClaimStatus"]["resourceClaimName"] == key.split("/")[1]


async def test_the_pod_names_a_created_claim_before_the_claim_is_reserved_and_no_more_once_it_is_deleted() -> (
    None
):
    """The kubelet waits for the claim that a pod names, whatever device plugin its node has."""
    (pod,) = _pods(1)
    server = _Server()
    named: list[int] = []
    server.on_allocated = lambda _: named.append(len(server.pod_patches))
    (answer,) = await _reserved(server, [_special(pod)])
    assert named == [1]
    (claim,) = answer.objects
    assert isinstance(claim, ResourceClaim)
    assert await _writer(server).write_all(WriteObjects(pod, (ClaimDeletion(claim),))) == []
    assert server.claims == {}
    assert server.pod_patches[-1] == {"extendedResourceClaimStatus": None}


async def test_a_claim_of_an_earlier_attempt_with_other_requests_is_replaced() -> None:
    (pod,) = _pods(1)
    server = _Server()
    server.loses = lambda number: number <= 2
    await _reserved(server, [_special(pod, count=2)])
    (answer,) = await _reserved(server, [_special(pod)])
    assert answer.problem == ""
    (claim,) = server.claims.values()
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


async def test_a_claim_of_that_name_of_another_owner_is_left_alone() -> None:
    (pod,) = _pods(1)
    server = _Server()
    write = _special(pod)
    server.put(resource_claim(write.obj.created_name))
    (answer,) = await _reserved(server, [write])
    assert answer.problem.startswith("create claim for extended resources default/: ")
    assert "already exists" in answer.problem
    assert len(server.claims) == 1


async def test_the_name_of_a_created_claim_is_valid_and_of_its_pod_alone() -> None:
    driver = Driver()
    long = driver.decoded(build.pod("a" * 221 + "." + "b" * 31))
    again = replace(long, uid="another")
    names = {_special(pod).obj.created_name for pod in (long, again)}
    assert len(names) == 2
    assert all(len(name) <= 253 and ".-" not in name for name in names)
