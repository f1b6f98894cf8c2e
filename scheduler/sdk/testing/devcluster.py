"""The embedded cluster and a scheduler as processes, for tests that look at a rule from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import yaml

from scheduler.sdk.testing.objects import JsonObject

_PATHS: Final = {
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
}
_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.05

T = TypeVar("T")


class DevClusterFixture:
    """An embedded API server. `apply` objects, `run_scheduler`, and wait for what becomes of the pods."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig: Final = folder / "kubeconfig"
        self._folder = folder
        self._processes: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._server = ""

    def __enter__(self) -> Self:
        self._start("devcluster", "--nodes", "0", "--kubeconfig", str(self.kubeconfig))
        self._server = self.wait_for(self._address, "the embedded cluster listens")
        return self

    def __exit__(self, *_error: object) -> None:
        for process, _ in reversed(self._processes):
            process.terminate()
        for process, _ in self._processes:
            process.wait(_TIMEOUT_S)

    def run_scheduler(self, *flags: str) -> None:
        """Start `affinity-scheduler run` with these flags, such as `--plugins FILE --config FILE`."""
        self._start(
            "run", "--kubeconfig", str(self.kubeconfig), "--port", "0", "--leader-elect", "false", *flags
        )

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create nodes, namespaces and pods. Raises AssertionError with the server's words if it refuses one."""
        for one in objects:
            metadata = one["metadata"]
            path = _PATHS[one["kind"]].format(namespace=metadata.get("namespace", "default"))
            self._request(path, one)

    def pod(self, name: str, namespace: str = "default") -> JsonObject:
        """Return the pod as the server has it."""
        return self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def get(self, path: str) -> JsonObject:
        """Return what the server has at the path, such as `/apis/events.k8s.io/v1/events`."""
        return self._request(path)

    def events(self, reason: str) -> list[str]:
        """Return the notes of the events of this reason so far."""
        events = self.get("/apis/events.k8s.io/v1/events")["items"]
        return [event["note"] for event in events if event["reason"] == reason]

    def node_of(self, name: str, namespace: str = "default") -> str:
        """Wait until the pod is bound, and return its node."""
        found: str = self.wait_for(
            lambda: self.pod(name, namespace)["spec"].get("nodeName"), f"pod {name} is bound"
        )
        return found

    def refusal_of(self, name: str, namespace: str = "default") -> str:
        """Wait until the scheduler says why the pod is not bound, and return its words."""

        def message() -> str | None:
            conditions = self.pod(name, namespace).get("status", {}).get("conditions", [])
            return next((one.get("message") for one in conditions if one["type"] == "PodScheduled"), None)

        return self.wait_for(message, f"pod {name} is refused")

    def wait_for(self, look: Callable[[], T | None], what: str) -> T:
        """
        Return what `look` returns, once that is something.

        Raises AssertionError if a process ends before, or after half a minute.
        """
        ends_s = time.monotonic() + _TIMEOUT_S
        while True:
            if found := look():
                return found
            for process, log in self._processes:
                assert process.poll() is None, f"waiting until {what}: a process ended:\n{log.read_text()}"
            assert time.monotonic() < ends_s, f"waited {_TIMEOUT_S:.0f} s until {what}"
            time.sleep(_POLL_S)

    def _start(self, *arguments: str) -> None:
        log = self._folder / f"{len(self._processes)}-{arguments[0]}.log"
        command = [sys.executable, "-m", "scheduler", *arguments]
        with log.open("wb") as out:
            self._processes.append((subprocess.Popen(command, stdout=out, stderr=out), log))  # noqa: S603

    def _address(self) -> str | None:
        if not self.kubeconfig.exists():
            return None
        config = yaml.safe_load(self.kubeconfig.read_text())
        return str(config["clusters"][0]["cluster"]["server"]) if config else None

    def _request(self, path: str, document: Mapping[str, Any] | None = None) -> JsonObject:
        body = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(  # noqa: S310 - the address is the embedded cluster's
            self._server + path, body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - as above
                found: JsonObject = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{request.get_method()} {path}: {error.read().decode()}") from error
