"""A machine, and a server of claims that carries out what the machine has written."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from scheduler.daemon.kube.requests import Request
from scheduler.daemon.settings.resolved import Settings
from scheduler.daemon.writes.reservation_writer import ReservationWriter
from scheduler.daemon.writes.sending import Sender
from scheduler.engine.framework.kinds import kinds
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.instructions import Instruction, WriteObjects, WriteReservation
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS
from scheduler.engine.model.stimuli import (
    DevicesServed,
    ObjectGone,
    ObjectSeen,
    ReservationWritten,
    WatchEvent,
)
from scheduler.errors import Unreachable
from tests.support import build
from tests.support.claim_server import ClaimServer
from tests.support.device_documents import device_class, device_slice
from tests.support.driving import Driver
from tests.support.scripted_server import FakeSleep


class LossyServer(ClaimServer):
    """A server whose answers may be lost: `loses` takes the number of the request."""

    def __init__(self) -> None:
        super().__init__()
        self.n_requests = 0
        self.loses: Callable[[int], bool] = lambda _: False

    async def request(
        self, request: Request, *, timeout_s: float, may_send: Callable[[], bool] = lambda: True
    ) -> bytes:
        """Answer, or lose the answer to what was carried out."""
        self.n_requests += 1
        number = self.n_requests
        body = await super().request(request, timeout_s=timeout_s, may_send=may_send)
        if self.loses(number):
            raise Unreachable(0, "Unreachable", "connection reset", took_effect_unknown=True)
        return body


class ClaimCluster(Driver):
    """
    A driver with claims.

    Attributes:
        events: of claims that the machine's watch has not shown yet.
    """

    def __init__(
        self,
        n_devices: int = 1,
        nodes: tuple[str, ...] = ("a", "b"),
        settings: Settings | None = None,
        *,
        is_served: bool = True,
        server: LossyServer | None = None,
    ) -> None:
        super().__init__(settings=settings)
        semantics = DEFAULT_SEMANTICS if settings is None else settings.semantics
        self._decode = {row.kind: row.decode for row in kinds(semantics=semantics)}
        self.server = LossyServer() if server is None else server
        self.writer = ReservationWriter(
            Sender(self.server, sleep=FakeSleep()),  # type: ignore[arg-type]  # it answers the requests of this writer
            clock_s=lambda: 1_900_000_000.0,
        )
        self.events: list[WatchEvent] = []
        self._shown: dict[str, str] = {}
        for name in nodes:
            self.node(name)
        self.show(device_class())
        for name in nodes:
            self.show(device_slice(name, n_devices))
        if is_served:
            self.serve_devices()

    def serve_devices(self) -> None:
        """Let the machine know that it has been shown all objects of devices."""
        for kind in DeviceKind:
            self.handle(DevicesServed(kind))

    def show(self, document: build.Json) -> None:
        """Show the machine an object of devices."""
        document = {**document, "metadata": {**document["metadata"], "resourceVersion": self.next_version()}}
        self.handle(ObjectSeen(self._decode[document["kind"]](json.dumps(document).encode())))

    def store(self, claim: build.Json) -> None:
        """Store a claim, as another client does; the watch shows it later."""
        self.server.put(claim)
        self.collect()

    def collect(self) -> None:
        """Let the watch know what was stored since the last call."""
        for key in [key for key in self._shown if key not in self.server.claims]:
            del self._shown[key]
            self.events.append(ObjectGone(DeviceKind.CLAIM, key))
        for key, claim in sorted(self.server.claims.items(), key=_version):
            version = claim["metadata"]["resourceVersion"]
            if self._shown.get(key) != version:
                self._shown[key] = version
                self.events.append(ObjectSeen(self._decode[DeviceKind.CLAIM](json.dumps(claim).encode())))

    def watch(self) -> list[Instruction]:
        """Show the machine all that is stored."""
        events, self.events = self.events, []
        return [instruction for event in events for instruction in self.handle(event)]

    def apply(self, *claims: build.Json) -> None:
        """Store claims, and show the machine all that is stored."""
        for claim in claims:
            self.store(claim)
        self.watch()

    def using(self, *claims: str, name: str = "p", labels: dict[str, str] | None = None, **spec: Any) -> Pod:
        """Show the machine a pod that uses the claims."""
        entries = [{"name": each, "resourceClaimName": each} for each in claims]
        return self.pod(name, labels=labels, spec={"resourceClaims": entries, **spec})

    def reserve(self) -> WriteReservation:
        """Run a cycle that reserves claims. Return its instruction."""
        (instruction,) = self.cycle()
        assert isinstance(instruction, WriteReservation), instruction
        return instruction

    def answer_to(self, instruction: WriteReservation) -> ReservationWritten:
        """Make the writes; the machine does not know the answer yet."""
        answer = asyncio.run(self.writer.write(instruction))
        self.collect()
        return answer

    def write(self, instruction: WriteReservation) -> list[Instruction]:
        """Make the writes and hand the machine the answer."""
        return self.handle(self.answer_to(instruction))

    def write_all(self, instruction: WriteObjects) -> list[str]:
        """Make the writes that nobody waits for; return what failed."""
        problems = asyncio.run(self.writer.write_all(instruction))
        self.collect()
        return problems

    def holds_nothing(self) -> None:
        """Assert that nothing is assumed of claims or pods any more."""
        self.audit()
        assert not self.state.devices._assumptions
        assert self.state.n_assumed == 0
        assert self.machine.n_binding == 0


def _version(item: tuple[str, build.Json]) -> int:
    return int(item[1]["metadata"]["resourceVersion"])
