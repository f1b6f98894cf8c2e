"""`affinity-scheduler bundle` beside a running scheduler: what is in it, what never is, and what can be missing."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import random
import shutil
import socket
import ssl
import stat
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.cli.main import main
from scheduler.cli.query import bundling
from scheduler.cli.query.redaction import LEFT_OUT, known_configuration, without_secrets
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import CORE_EVENT, NODE, POD
from tests.cli.conftest import SECRET, Called, embedded, recorded, web
from tests.support import accounts, build
from tests.support.api_client import Api
from tests.support.apiserver import Address
from tests.support.cluster import kubeconfig_of, kubeconfig_text
from tests.support.daemon import Daemon, running
from tests.support.port_forwarding import port_forwarding
from tests.support.waiting import until

POD_NAME = socket.gethostname().lower()
FOLDER = "affinity-scheduler-bundle"
ANSWERED = {
    *("configz.json", "flagz.txt", "statusz.txt", "readyz.txt", "metrics.txt"),
    *("now.json", "pending.json", "decisions.json"),
}
OF_CLUSTER = {"snapshot.json", "apiserver.json", "lease.json", "events.json"}
WRITTEN = {"MANIFEST.txt", "versions.json"}
#: What a user who makes bundles may do, secrets and configuration maps excepted.
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bundler}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: [get, list]}
- {nonResourceURLs: ["*"], verbs: [get]}
"""


def read(path: Path) -> dict[str, str]:
    """Return the texts of a bundle by name."""
    with tarfile.open(path) as tar:
        assert {member.name.partition("/")[0] for member in tar} == {FOLDER}
        assert {member.mode for member in tar} == {0o600}
        found = {}
        for member in tar:
            stream = tar.extractfile(member)
            assert stream is not None
            found[member.name.partition("/")[2]] = stream.read().decode()
    return found


def add_scheduler_pod(cluster: DevCluster) -> None:
    """
    Create the pod of the scheduler that holds the Lease, by this host's name.

    It has secrets in each place where a pod can have them.
    """
    container = {
        "name": "scheduler",
        "image": "affinity-scheduler:1",
        "args": [f"--webhook-token={SECRET}"],
        "command": ["run", SECRET],
        "env": [{"name": "TOKEN", "value": SECRET}],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "ports": [{"containerPort": 10259}],
    }
    metadata = {
        "name": POD_NAME,
        "labels": {"app.kubernetes.io/name": "affinity-scheduler"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET},
    }
    spec = {"containers": [container], "nodeName": "node-0001"}
    cluster.store.create(POD, "kube-system", {"metadata": metadata, "spec": spec})
    stored = cluster.store.get(POD, "kube-system", POD_NAME)
    status = {"phase": "Running", "containerStatuses": [{"name": "scheduler", "restartCount": 1}]}
    cluster.store.rewrite(POD, {**stored, "status": {**stored["status"], **status}})


@asynccontextmanager
async def scheduled(folder: Path, *arguments: str) -> AsyncIterator[tuple[DevCluster, Daemon, str]]:
    """Yield a cluster with secrets, its scheduler that has tried a pod, and a token of the role above."""
    async with DevCluster(nodes=3, zones=3) as cluster:
        for number in range(4):
            cluster.store.create(POD, "default", web(f"web-{number}"))
        node = cluster.store.get(NODE, "", "node-0001")
        metadata = {**node["metadata"], "annotations": {"team/token": SECRET}}
        cluster.store.rewrite(NODE, {**node, "metadata": metadata})
        add_scheduler_pod(cluster)
        (folder / "role.yaml").write_text(ROLE)
        token = accounts.new_account(cluster, "bundler", folder / "role.yaml")
        kubeconfig = accounts.account_kubeconfig(cluster, "scheduler", folder)
        async with running(kubeconfig, *arguments) as daemon:
            daemon.token = token
            await until(lambda: daemon.metric("scheduler_schedule_attempts_total"), lambda n: n >= 4)
            yield cluster, daemon, token


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
async def test_a_bundle_has_what_a_bug_report_needs_and_no_secrets(tmp_path: Path, called: Called) -> None:
    """Through kubectl's port-forward, as in a cluster; `explain` reads the file."""
    path = tmp_path / "bundle.tar.gz"
    path.touch(mode=0o644)
    async with scheduled(tmp_path, "--bind-address", "0.0.0.0") as (cluster, daemon, token):

        def log() -> str:
            return "\n".join([*daemon.lines, f"password={SECRET}", f"Authorization: Bearer {token}"])

        async with port_forwarding(cluster.url, daemon.port, log) as front:
            kubeconfig = tmp_path / "front"
            kubeconfig.write_text(kubeconfig_text(front, token=token))
            code, out, err = await called("bundle", "-o", str(path), "--kubeconfig", str(kubeconfig))
    assert (code, out) == (0, "")
    assert [line.rpartition(": ")[0] for line in err.splitlines()] == ["DIR/bundle.tar.gz"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    parts = read(path)
    logs = {"pods.json", f"log-{POD_NAME}.txt", f"log-{POD_NAME}-previous.txt"}
    assert set(parts) == WRITTEN | OF_CLUSTER | ANSWERED | logs
    for name, text in parts.items():
        assert SECRET not in text, name
        assert token not in text, name
        assert name in parts["MANIFEST.txt"] or name == "MANIFEST.txt"
    assert "missing" not in parts["MANIFEST.txt"]
    assert {entry["pod"] for entry in json.loads(parts["decisions.json"])["decisions"]} >= {"web-0", "web-3"}
    assert json.loads(parts["now.json"])["queue"]
    configuration = json.loads(parts["configz.json"])["componentconfig"]
    assert configuration["profiles"][0]["schedulerName"] == "affinity-scheduler"
    assert LEFT_OUT not in parts["configz.json"]
    assert "secure-port" in parts["flagz.txt"]
    assert "scheduler_pending_pods" in parts["metrics.txt"]
    assert "Serving the page" in parts[f"log-{POD_NAME}.txt"]
    assert "FailedScheduling" in parts["events.json"]
    assert json.loads(parts["lease.json"])["spec"]["holderIdentity"]
    assert json.loads(parts["pods.json"])["status"]["containerStatuses"][0]["restartCount"] == 1
    assert json.loads(parts["versions.json"])["packages"]["aiohttp"]
    code, out, err = await called("explain", "web-3", "--on", str(path))
    assert (code, err) == (1, "")
    assert "didn't match pod anti-affinity rules" in out


async def test_parts_that_cannot_be_had_are_named_and_the_rest_is_written(
    tmp_path: Path, called: Called
) -> None:
    """A scheduler on this machine, and a user who may read what `explain` reads."""
    path = tmp_path / "bundle.tar.gz"
    async with scheduled(tmp_path) as (cluster, daemon, _):
        kubeconfig = accounts.person_kubeconfig(cluster, tmp_path, accounts.EXPLAIN_READER)
        flags = ("--url", f"http://127.0.0.1:{daemon.port}", "--kubeconfig", kubeconfig)
        code, _, err = await called("bundle", "-o", str(path), *flags)
    parts = read(path)
    assert code == 0
    assert set(parts) == WRITTEN | ANSWERED | {"snapshot.json", "apiserver.json", "pods.json"}
    missing = [line for line in parts["MANIFEST.txt"].splitlines() if ": missing: " in line]
    assert err.splitlines()[:-1] == missing
    assert {line.split()[0].rstrip(":") for line in missing} == {
        *("lease.json", "events.json"),
        *(f"log-{POD_NAME}.txt", f"log-{POD_NAME}-previous.txt"),
    }
    assert all("403" in line or "404" in line for line in missing)
    assert SECRET not in "".join(parts.values())


async def test_without_scheduler_and_rights_the_reasons_are_all_there_is(
    tmp_path: Path, called: Called, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """As in the README's embedded cluster, whose scheduler no kubectl can forward to; one beside it has a flag."""
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "bundle.tar.gz"
    async with DevCluster(nodes=1) as cluster:
        kubeconfig = accounts.person_kubeconfig(cluster, tmp_path)
        flags = ("-o", str(path), "--kubeconfig", kubeconfig)
        code, _, err = await called("bundle", *flags)
        (line,) = (line for line in err.splitlines() if line.startswith("what the scheduler's port answers"))
        assert (code, line) == (0, snapshot)
        code, _, err = await called("bundle", *flags, "--url", "http://127.0.0.1:1")
    assert code == 0
    assert set(read(path)) == {*WRITTEN, "apiserver.json"}
    assert err.count(": missing: ") == len(ANSWERED) + 4
    assert await called("explain", "web-0", "--on", str(path)) == (2, "", snapshot)


async def test_limits_are_named(
    tmp_path: Path, called: Called, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """Of a cluster that is too large for a snapshot, whose reading ends early, and of events."""
    monkeypatch.setattr(bundling, "_EVENTS_READ", 2)
    monkeypatch.setattr(bundling, "SNAPSHOT_LIMIT_BYTES", 1_000)
    path = tmp_path / "bundle.tar.gz"
    async with embedded(tmp_path, nodes=3) as cluster:
        for number in range(3):
            event = {"metadata": {"name": f"e{number}"}, "reportingComponent": "affinity-scheduler"}
            event |= {"involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}}
            cluster.store.create(CORE_EVENT, "default", event)
        code, _, err = await called("bundle", "-o", str(path), "--url", "http://127.0.0.1:1")
    assert code == 0
    parts, lines = read(path), err.splitlines()
    assert "snapshot.json" not in parts
    told = [line for line in lines if line.startswith(("snapshot.json", "events.json"))]
    assert sorted(told) == snapshot
    assert len(parts["events.json"].splitlines()) == 2
    assert all(line in parts["MANIFEST.txt"] for line in told)


async def test_a_scheduler_that_hangs_costs_its_time_once(
    tmp_path: Path, called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its port accepts connections and never answers: each part says so."""
    monkeypatch.setattr(bundling, "_PORT_TIMEOUT_S", 0.5)
    path = tmp_path / "bundle.tar.gz"

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with embedded(tmp_path, nodes=1), await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        code, _, err = await called("bundle", "-o", str(path), "--url", url)
    assert code == 0
    assert {f"{name}: missing: no answer in time" for name in ANSWERED} <= set(err.splitlines())
    assert "snapshot.json" in read(path)


@pytest.mark.real
async def test_a_real_api_server_accepts_every_request(
    real_server: Address, tmp_path: Path, called: Called
) -> None:
    """No selector, no parameter, and no form of the log. It has no Lease of a scheduler."""
    path, context = tmp_path / "b", ssl.create_default_context(cafile=str(real_server.ca_file))
    kubeconfig = kubeconfig_of(real_server, tmp_path / "kubeconfig", token=real_server.token)
    pod = build.pod("bundled", labels={"app.kubernetes.io/name": "affinity-scheduler"})
    del pod["metadata"]["uid"]
    async with Api(real_server.url, {"Authorization": f"Bearer {real_server.token}"}, ssl=context) as api:
        assert (await api.post("/api/v1/namespaces/default/pods", pod)).ok
        flags = ("-n", "default", "--url", "http://127.0.0.1:1", "--kubeconfig", str(kubeconfig))
        code, _, err = await called("bundle", "-o", str(path), *flags)
        await api.delete("/api/v1/namespaces/default/pods/bundled", {"gracePeriodSeconds": 0})
    assert code == 0
    assert set(read(path)) == WRITTEN | OF_CLUSTER - {"lease.json"} | {"pods.json", "log-bundled.txt"}
    missing = [line.partition(": missing: ")[::2] for line in err.splitlines() if ": missing: " in line]
    ((name, reason),) = (each for each in missing if each[0] not in ANSWERED)
    assert name == "lease.json"
    assert reason.startswith("404 ")


def test_a_url_is_a_loopback_address(capsys: pytest.CaptureFixture[str]) -> None:
    """A token would be sent to any other one."""
    for url in (
        "http://example.com:10259",
        "127.0.0.1:1",
        "ftp://127.0.0.1:1",
        "http://127.0.0.1:99999",
        "http://[::1",
    ):
        assert main(["bundle", "-o", "never-written", "--url", url]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"--url: found {url}")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f'err="401 Unauthorized: Bearer {SECRET}"', id="a header"),
        pytest.param(f'err="401 Unauthorized: Authorization: Basic {SECRET}"', id="a password in a header"),
        pytest.param(f"https://user:{SECRET}@host/path", id="a URL"),
        pytest.param(f"AWS_SECRET_ACCESS_KEY={SECRET}", id="a variable"),
        pytest.param(f"user:\n  client-key-data: {SECRET}\n", id="a line of YAML"),
        pytest.param(f'{{"message": "users:\\n- token: {SECRET}\\n"}}', id="YAML in JSON"),
        pytest.param(f'{{"clientSecret": "{SECRET} {SECRET}"}}', id="a field"),
        pytest.param(f'{{"message": "{{\\"api_key\\":\\"{SECRET}\\"}}"}}', id="JSON in JSON"),
        pytest.param(f"--some-token={SECRET} --v=2", id="a flag"),
        pytest.param(f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n", id="a key that is cut off"),
        pytest.param(f"the plain value {SECRET}", id="the user's own token"),
        pytest.param(f"eyJhbGciOiJSUzI1NiJ9.{SECRET}", id="a web token that is cut off"),
    ],
)
def test_a_text_loses_its_secrets(text: str) -> None:
    redacted = without_secrets(text, [SECRET] if "plain" in text else [])
    assert SECRET not in redacted
    assert LEFT_OUT in redacted


def test_other_text_is_kept() -> None:
    """Also words that only resemble names of secrets."""
    text = (
        'I1121 09:33:57.1 1 a.py:2] "Scheduled" pod="shop/web-1" node="n7" topologyKey="zone"\n'
        "authentication-token-webhook-cache-ttl: 10s\nhttps://10.0.0.1:6443/api kind=Secret tokens: 3"
    )
    assert without_secrets(text) == text


def test_a_configuration_loses_fields_named_like_secrets_and_arguments_of_other_plugins() -> None:
    """The arguments of built-in plugins stay."""
    ours = {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 5}}
    theirs = {"name": "Mine", "args": {"address": SECRET}}
    document = {
        "profiles": [{"pluginConfig": [ours, theirs]}],
        "extenders": [{"tlsConfig": {"keyData": [SECRET], "insecure": True}}],
    }
    assert known_configuration(document) == {
        "profiles": [{"pluginConfig": [ours, {"name": "Mine", "args": LEFT_OUT}]}],
        "extenders": [{"tlsConfig": {"keyData": LEFT_OUT, "insecure": True}}],
    }


def test_parts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "LIMIT_BYTES", 60)
    made = bundling.Bundle()
    made.add("log.txt", b"x" * 100)
    (tmp_path / "b").write_bytes(made.packed())
    parts = read(tmp_path / "b")
    assert parts["log.txt"] == "x" * 60
    assert "log.txt: 60 bytes, cut: it has more than 60" in parts["MANIFEST.txt"]


@pytest.mark.parametrize("form", ["tar", "gz"])
def test_a_damaged_bundle_is_one_line(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever byte is wrong: the answer or exit code 2, never a traceback."""
    stream = io.BytesIO()
    snapshot = Path(recorded(tmp_path, build.node("n"), build.pod("p"))).read_bytes()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        member = tarfile.TarInfo(f"{FOLDER}/snapshot.json")
        member.size = len(snapshot)
        tar.addfile(member, io.BytesIO(snapshot))
    whole = stream.getvalue() if form == "tar" else gzip.compress(stream.getvalue())
    rng, path = random.Random(7), tmp_path / "b"
    path.write_bytes(whole)
    assert main(["explain", "p", "--on", str(path)]) == 0
    for _ in range(30):
        damaged = bytearray(whole[: rng.randint(1, 1024)] if rng.random() < 0.3 else whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(min(len(damaged), 1024))] = rng.randrange(256)
        path.write_bytes(damaged)
        capsys.readouterr()
        code = main(["explain", "p", "--on", str(path)])
        assert code in (0, 1, 2)
        # That the file is cut is a line of its own.
        lines = capsys.readouterr().err.splitlines()
        assert code != 2 or (0 < len(lines) <= 2 and all(line.startswith(str(path)) for line in lines))
