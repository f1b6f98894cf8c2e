"""The embedded cluster with its scheduler, as `devcluster --ui` runs them, and a browser."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import build
from tests.support.browser import browsing, why_none
from tests.support.build import Json
from tests.support.cluster import NAME
from tests.support.kubernetes_client import requested
from tests.support.manifest_files import MANIFESTS, collection_of, documents
from tests.support.ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PODS = "/api/v1/namespaces/default/pods"
_ADDRESS = re.compile(r"at (http://127\.0\.0\.1:\d+)")
_EXAMPLES = MANIFESTS / "examples"
_PATIENCE_S = 60.0


def until(holds: Callable[[], object]) -> None:
    """Wait for a condition."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, "the condition did not come true"
        time.sleep(0.05)


@dataclass
class Served:
    """The addresses of the API server and of the scheduler's port."""

    api: str
    scheduler: str
    kubeconfig: Path

    def request(self, *request: Any) -> Any:
        """Return the API server's answer to a method, a path, a body and its type."""
        return requested(self.api, *request)

    def add_pod(self, name: str, *, spec: Json | None = None, **settings: Any) -> None:
        """Create a pod for the scheduler."""
        pod = build.pod(name, spec={"schedulerName": NAME, **(spec or {})}, **settings)
        del pod["metadata"]["uid"]
        self.request("POST", PODS, pod)

    def merge(self, path: str, change: Json) -> None:
        """Merge a change into the object at the path."""
        self.request("PATCH", path, change, "application/merge-patch+json")

    def apply(self, example: str) -> None:
        """Create the objects of an example."""
        for document in documents(_EXAMPLES / example):
            self.request("POST", collection_of(document), document)

    def shown(self, path: str) -> Any:
        """Return the page's data."""
        with urllib.request.urlopen(f"{self.scheduler}/api/v1/{path}", timeout=30) as answer:
            return json.load(answer)


@dataclass
class Standby:
    """A scheduler that waits for the lease, and can be ended and started again on its port."""

    kubeconfig: Path
    port: int
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Return the address of the scheduler's port."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, unless it runs; it serves its page a second later."""
        if self.process is not None:
            return
        self.process = _program("run", "--kubeconfig", self.kubeconfig, "--port", str(self.port))

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            _end(self.process)
        self.process = None


def _program(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "scheduler", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=_PATIENCE_S) == 0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a cluster with a rollout that is stuck on its anti-affinity."""
    folder = tmp_path_factory.mktemp("cluster")
    process = _program("devcluster", "--ui", "--gpus", "2", "--kubeconfig", folder / "kubeconfig")
    assert process.stdout is not None
    try:
        found: list[str] = []
        for line in process.stdout:
            found += _ADDRESS.findall(line)
            if len(found) == 2:
                break
        assert len(found) == 2, "the addresses of the API server and of the page"
        cluster = Served(found[0], found[1], folder / "kubeconfig")
        until(lambda: _answers(f"{cluster.scheduler}/readyz"))
        _stuck_rollout(cluster)
        yield cluster
    finally:
        _end(process)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def _stuck_rollout(cluster: Served) -> None:
    cluster.apply("01-blue-green-stuck.yaml")
    pods = "/api/v1/namespaces/shop-stuck/pods"
    until(lambda: [p for p in cluster.request("GET", pods)["items"] if p["spec"].get("nodeName")][2:])
    image = {"containers": [{"name": "shop", "image": "registry.k8s.io/pause:3.10"}]}
    cluster.request(
        "PATCH",
        "/apis/apps/v1/namespaces/shop-stuck/deployments/shop",
        {"spec": {"template": {"spec": image}}},
        "application/strategic-merge-patch+json",
    )
    until(lambda: any(group["pods"] == 3 for group in cluster.shown("pending")["groups"]))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield one browser for all tests of a file."""
    reason = why_none()
    if reason is not None:
        pytest.skip(reason)
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def _second(served: Served) -> Iterator[Standby]:
    instance = Standby(served.kubeconfig, free_port())
    yield instance
    instance.stop()


@pytest.fixture
def standby(_second: Standby) -> Standby:
    """Return a second scheduler of the cluster, on a port of its own, which runs."""
    _second.start()
    until(lambda: _answers(f"{_second.url}/readyz"))
    return _second
