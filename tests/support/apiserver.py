"""
A real etcd and kube-apiserver on the loopback interface, from the folder that KUBEBUILDER_ASSETS names.

Everything they write goes into one folder, which the caller owns.
"""

import base64
import contextlib
import json
import os
import secrets
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ports import free_port

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0

#: DER of the object identifier prime256v1, as SEC 1 wants it in a private key.
_PRIME256V1 = bytes.fromhex("a00a06082a8648ce3d030107")


def assets() -> Path | None:
    """Return the folder with both binaries, or None where there is none."""
    named = os.environ.get("KUBEBUILDER_ASSETS", "")
    folder = Path(named)
    present = named and all((folder / name).is_file() for name in ("etcd", "kube-apiserver"))
    return folder if present else None


def _private_key_pem() -> str:
    """Return a new P-256 private key. It has no public half: OpenSSL and Go compute that when they read the key."""
    scalar = secrets.token_bytes(32)
    body = b"\x02\x01\x01" + b"\x04\x20" + scalar + _PRIME256V1
    der = b"\x30" + bytes([len(body)]) + body
    encoded = base64.encodebytes(der).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{encoded}-----END EC PRIVATE KEY-----\n"


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
        threading.Thread(target=self._keep_namespaces, args=(address,), daemon=True).start()
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
        key = self._folder / "service-account.key"
        key.write_text(_private_key_pem())
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
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            # Without controllers no node loses the taint that new nodes get.
            "--disable-admission-plugins=TaintNodesByCondition",
            "--service-cluster-ip-range=10.96.0.0/16",
            *self._flags,
        )

    def _keep_namespaces(self, address: Address) -> None:
        """
        Do two things that controllers do, until the server stops.

        Each namespace gets the ServiceAccount `default`, for which the admission of pods waits a second, and one that
        is deleted goes at once. What is in it stays.
        """
        account = json.dumps({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
        with contextlib.suppress(OSError):  # the server has stopped
            for line in self._opened(address, "/api/v1/namespaces?watch=true", timeout_s=None):
                event, namespace = json.loads(line)["type"], json.loads(line)["object"]
                path = f"/api/v1/namespaces/{namespace['metadata']['name']}"
                with contextlib.suppress(urllib.error.HTTPError):  # somebody was first
                    if "deletionTimestamp" in namespace["metadata"] and event == "MODIFIED":
                        body = json.dumps(namespace | {"spec": {"finalizers": []}}).encode()
                        self._opened(address, f"{path}/finalize", body, method="PUT").close()
                    elif event == "ADDED":
                        self._opened(address, f"{path}/serviceaccounts", account.encode()).close()

    @staticmethod
    def _opened(
        address: Address,
        path: str,
        body: bytes | None = None,
        *,
        method: str | None = None,
        timeout_s: float | None = 10.0,
    ) -> Any:
        headers = {"Authorization": f"Bearer {address.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(address.url + path, body, headers, method=method)
        context = ssl.create_default_context(cafile=str(address.ca_file))
        return urllib.request.urlopen(request, timeout=timeout_s, context=context)

    def _wait_until_ready(self, address: Address) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if any(process.poll() is not None for process in self._processes):
                break
            try:
                self._opened(address, "/readyz").close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        log = (self._folder / "kube-apiserver.log").read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"the API server did not become ready in {_START_TIMEOUT_S:.0f} s:\n{log}")
