"""A machine, and a server of volumes that stores what the machine orders."""

from __future__ import annotations

from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.model.instructions import Instruction, WriteReservation
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import PodSeen
from tests.support import build
from tests.support.cases.volume_rows import using
from tests.support.driving import NAME, Driver
from tests.support.storage_objects import storage_class
from tests.support.volume_server import VolumeServer


class VolumeCluster(Driver):
    """A machine that watches a server of volumes, which makes those of one class and not those of another."""

    def __init__(
        self,
        server: VolumeServer | None = None,
        *,
        nodes: tuple[str, ...] = ("a", "b"),
        settings: Settings | None = None,
    ) -> None:
        super().__init__(settings=settings)
        self.server = VolumeServer() if server is None else server
        self._n_watched = 0
        for name in nodes:
            self.node(name)
        if server is None:
            self.server.apply(storage_class("made"))
            self.server.apply(storage_class("local", "kubernetes.io/no-provisioner"))
        self.watch()

    def watch(self) -> list[Instruction]:
        """Show the machine everything that was stored since the last call."""
        events = self.server.events[self._n_watched :]
        self._n_watched = len(self.server.events)
        return [instruction for event in events for instruction in self.handle(event)]

    def apply(self, *documents: build.Json) -> None:
        for document in documents:
            self.server.apply(document)
        assert self.watch() == []

    def waits(
        self, *claims: str, name: str = "p", cpu: str | None = None, priority: int = 0, nominated: str = ""
    ) -> Pod:
        """Show the machine a pod that uses the claims."""
        document = using(*claims, name=name)
        containers = [build.container(requests=None if cpu is None else {"cpu": cpu})]
        document["spec"] |= {"schedulerName": NAME, "priority": priority, "containers": containers}
        document["status"]["nominatedNodeName"] = nominated
        pod = self.decoded(document)
        self.handle(PodSeen(pod))
        return pod

    def reserve(self) -> WriteReservation:
        """Run a cycle that reserves volumes. Return its instruction."""
        (instruction,) = self.cycle()
        assert isinstance(instruction, WriteReservation), instruction
        return instruction

    def write(self, instruction: WriteReservation, n_most: int = 99) -> list[Instruction]:
        return self.handle(self.server.write(instruction, n_most))

    def holds_nothing(self) -> None:
        """Assert that no volume and no pod is assumed any more."""
        self.audit()
        assert not self.state.volumes._assumptions
        assert self.state.n_assumed == 0
        assert self.machine.n_binding == 0
