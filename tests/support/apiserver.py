"""
A real etcd and kube-apiserver on the loopback interface, from the folder that KUBEBUILDER_ASSETS names.

Everything they write goes into one folder, which the caller owns.
"""

import asyncio
import contextlib
import os
import secrets
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.support.certificates import Authority
from tests.support.ports import free_port

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0


def assets() -> Path | None:
    """Return the folder with both binaries, or None where there is none."""
    named = os.environ.get("KUBEBUILDER_ASSETS", "")
    folder = Path(named)
    present = named and all((folder / name).is_file() for name in ("etcd", "kube-apiserver"))
    return folder if present else None


@dataclass(frozen=True, slots=True)
class Address:
    """How to reach a running server."""

    url: str
    token: str
    ca_file: Path

    @property
    def scheduler_token(self) -> str:
        """Return the token of the user in kubeadm's scheduler.conf, who has in every cluster the rights of one."""
        return f"{self.token}-of-kube-scheduler"


class RealApiServer:
    """One etcd and one kube-apiserver with these flags; call `start` before and `stop` after."""

    def __init__(self, binaries: Path, folder: Path, *flags: str, etcd_flags: Sequence[str] = ()) -> None:
        self._binaries = binaries
        self._etcd_flags = etcd_flags
        #: Where etcd listens, once it is started.
        self.etcd_url = ""
        self._folder = folder
        self._flags = flags
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> Address:
        """Start both and wait until the server is ready. Raises: RuntimeError, with its log, if it is not in time."""
        self.etcd_url = self._start_etcd()
        token, port = secrets.token_urlsafe(24), free_port()
        self._start_api_server(self.etcd_url, token, port)
        address = Address(f"https://127.0.0.1:{port}", token, self._folder / "certs" / "apiserver.crt")
        self._wait_until_ready(address)
        begun = threading.Event()
        threading.Thread(target=asyncio.run, args=(_keep_namespaces(address, begun),), daemon=True).start()
        if not begun.wait(_START_TIMEOUT_S):
            self.stop()
            raise RuntimeError(f"no namespace was kept in {_START_TIMEOUT_S:.0f} s")
        return address

    def stop(self) -> None:
        """Stop both processes."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _run(self, name: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            command = [str(self._binaries / name), *arguments]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder))

    def _start_etcd(self) -> str:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._run(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            *self._etcd_flags,
        )
        return client

    def _start_api_server(self, etcd_url: str, token: str, port: int) -> None:
        # In a folder of its own: a test may have an authority beside.
        accounts = self._folder / "service-accounts"
        accounts.mkdir(exist_ok=True)
        pair = Authority(accounts).pair
        tokens = self._folder / "tokens.csv"
        scheduler = Address("", token, tokens).scheduler_token
        tokens.write_text(
            f"{token},tester,tester,system:masters\n{scheduler},system:kube-scheduler,system:kube-scheduler\n"
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers={etcd_url}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._folder / 'certs'}",
            "--service-account-issuer=https://contract.test",
            f"--service-account-key-file={pair.cert}",
            f"--service-account-signing-key-file={pair.key}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            # Without controllers no node loses the taint that new nodes get.
            "--disable-admission-plugins=TaintNodesByCondition",
            "--service-cluster-ip-range=10.96.0.0/16",
            *self._flags,
        )

    def _wait_until_ready(self, address: Address) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if any(process.poll() is not None for process in self._processes):
                break
            try:
                trusted = ssl.create_default_context(cafile=str(address.ca_file))
                urllib.request.urlopen(f"{address.url}/readyz", timeout=10.0, context=trusted).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        log = (self._folder / "kube-apiserver.log").read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"the API server did not become ready in {_START_TIMEOUT_S:.0f} s:\n{log}")


async def _keep_namespaces(address: Address, begun: threading.Event) -> None:
    """
    Do two things that controllers do, until the server stops; `begun` is set once the first is done.

    Each namespace gets the ServiceAccount `default`, for which the admission of pods waits a second, and one that is
    deleted goes at once. What is in it stays.
    """
    # Half a second, which only those tests pay that run on a real server.
    from kubernetes_asyncio.client import ApiException, CoreV1Api, V1ObjectMeta, V1ServiceAccount
    from kubernetes_asyncio.watch import Watch

    from tests.support.kubernetes_client import client_of

    async with client_of(address.url, address.token, address.ca_file) as client, Watch() as watch:
        api = CoreV1Api(client)
        with contextlib.suppress(aiohttp.ClientError):  # the server has stopped
            async for event in watch.stream(api.list_namespace):
                namespace = event["object"]
                with contextlib.suppress(ApiException):  # somebody was first
                    if namespace.metadata.deletion_timestamp and event["type"] == "MODIFIED":
                        namespace.spec.finalizers = []
                        await api.replace_namespace_finalize(namespace.metadata.name, namespace)
                    elif event["type"] == "ADDED":
                        account = V1ServiceAccount(metadata=V1ObjectMeta(name="default"))
                        await api.create_namespaced_service_account(namespace.metadata.name, account)
                begun.set()
