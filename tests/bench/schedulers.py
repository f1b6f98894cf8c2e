"""Schedulers as processes of their own: ours, one that only binds, another checkout of ours, and a kube-scheduler."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.loaded import SCHEDULER
from tests.bench.servers import Server
from tests.support.ports import free_port

_QPS: Final = 5000
_STOP_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Contender:
    """
    A scheduler that can be started. `name` is the schedulerName of its pods.

    `module`: what Python runs in the folder `checkout`, if there is no `binary`. `keeps_rules`: whether its bindings
    have to keep the rules of the pods.
    """

    label: str
    name: str
    binary: Path | None = None
    module: str = "scheduler"
    checkout: Path = Path()
    keeps_rules: bool = True

    @property
    def log_name(self) -> str:
        """Return the name of its log in the server's folder."""
        return f"{self.label.replace(' ', '-')}.log"

    def command(self, server: Server) -> list[str]:
        """Return the command that starts it against the server."""
        port = str(free_port())
        kubeconfig = server.kubeconfig()
        if self.binary is None:
            own = [sys.executable, "-m", self.module, "run", "-v", "0", "--kubeconfig", str(kubeconfig)]
            return [*own, "--port", port]
        return [
            str(self.binary),
            f"--config={self._configuration(server, kubeconfig)}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={server.folder / 'scheduler-certs'}",
            "--leader-elect=false",
        ]

    def _configuration(self, server: Server, kubeconfig: Path) -> Path:
        """Write kube-scheduler's default configuration without its client-side rate limit."""
        path = server.folder / "kube-scheduler.json"
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": _QPS, "burst": _QPS},
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": self.name}],
        }
        path.write_text(json.dumps(document))
        return path


OURS: Final = Contender("ours", SCHEDULER)
#: The limit of the path: what binding alone, without any thought, reaches.
BINDING_ONLY: Final = Contender(
    "binding only", SCHEDULER, module="tests.bench.binding_only", keeps_rules=False
)


def other_checkout(folder: Path) -> Contender:
    """Return our scheduler as another checkout has it, to be measured beside this one."""
    return Contender("other checkout", SCHEDULER, checkout=folder)


def kube_scheduler(binary: Path) -> Contender:
    """Return the kube-scheduler of this binary, with a schedulerName that is not the default."""
    return Contender("kube-scheduler", "kube-scheduler-bench", binary)


@contextmanager
def running(contender: Contender, server: Server, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run its process for the block; add the end of its log to a RuntimeError of the block."""
    log = server.folder / contender.log_name
    with process([*contender.command(server), *flags], log, folder=contender.checkout) as scheduler:
        try:
            yield scheduler
        except RuntimeError as error:
            raise RuntimeError(f"{contender.label}: {error}; its log: {_tail(log)}") from error


@contextmanager
def controlling(binary: Path, controllers: str, kubeconfig: Path, *flags: str) -> Iterator[None]:
    """Run a kube-controller-manager with these controllers alone for the block; its files are beside the kubeconfig."""
    folder = kubeconfig.parent
    command = [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--controllers={controllers}",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--cert-dir={folder / 'controller-manager-certs'}",
        "--leader-elect=false",
        f"--kube-api-qps={_QPS}",
        f"--kube-api-burst={_QPS}",
        *flags,
    ]
    with process(command, folder / "kube-controller-manager.log"):
        yield


@contextmanager
def process(command: list[str], log: Path, *, folder: Path = Path()) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command in the folder for the block; it ends by SIGTERM, or SIGKILL if that takes long."""
    with log.open("wb") as output:
        started = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def _tail(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-5:])
