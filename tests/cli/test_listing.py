"""Servers that do not answer, and users that may not list all kinds."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import tarfile
from pathlib import Path

import pytest

from scheduler.cli.query import listing
from scheduler.daemon.settings.loading import default_settings
from scheduler.sandbox.devcluster.cluster import DevCluster
from tests.cli.conftest import Called, served
from tests.support import accounts
from tests.support.api_bodies import body
from tests.support.cluster import kubeconfig_text
from tests.support.manifest_files import documents
from tests.support.scripted_server import reply, scripted


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("explain", "web-0"), id="explain"),
        pytest.param(("simulate", "--drain", "node-0001"), id="simulate"),
        pytest.param(("snapshot", "-o", "-"), id="snapshot"),
    ],
)
async def test_a_server_that_does_not_answer_is_named_while_it_is_waited_for(
    command: tuple[str, ...], tmp_path: Path, called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_QUIET_S", 0.05)
    monkeypatch.setattr(listing, "_TIMEOUT_S", 0.5)

    has_ended = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        has_ended.set()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        (tmp_path / "k").write_text(kubeconfig_text(url))
        code, out, err = await called(*command, "--kubeconfig", str(tmp_path / "k"))
        await has_ended.wait()
    waits, end = err.splitlines()
    assert (code, out) == (2, "")
    assert re.fullmatch(r"Waiting for the API server: (get|list) /\S+, for 0 s at most\.", waits)
    assert end == (
        f"API server: {url}: no response within 0.5 s; "
        "is the way there open, past firewalls and through a VPN or a proxy (HTTPS_PROXY)?"
    )


async def test_a_server_that_says_when_to_ask_again_is_asked_again(tmp_path: Path, called: Called) -> None:
    """As one of several whose cache is behind the others': the next answer comes from one that is not."""
    behind = reply(
        body(504, "Timeout", "Too large resource version: 12, current: 10"),
        status=504,
        headers={"Retry-After": "0"},
    )
    refused = reply(body(500, "InternalError", "no"), status=500)
    async with scripted(behind, behind, reply(b'{"major":"1","minor":"36"}'), refused) as script:
        (tmp_path / "k").write_text(kubeconfig_text(script.url))
        code, _, err = await called("simulate", "--drain", "a", "--kubeconfig", str(tmp_path / "k"))
    assert code == 2
    assert err == f"API server: {script.url}: 500 InternalError: no; try again\n"
    assert [each.path for each in script.received[:3]] == ["/version"] * 3


async def test_a_server_that_redirects_is_no_api_server(tmp_path: Path, called: Called) -> None:
    async with scripted(reply(b"", status=302)) as script:
        (tmp_path / "k").write_text(kubeconfig_text(script.url))
        code, _, err = await called("simulate", "--drain", "a", "--kubeconfig", str(tmp_path / "k"))
    assert code == 2
    assert err == f"API server: {script.url}: 302 Found; is this the address of an API server?\n"


def kubeconfig_without(cluster: DevCluster, folder: Path, *resources: str) -> str:
    """Return the path of a kubeconfig of a user of the commands who may not list these resources."""
    (reader,) = documents(accounts.EXPLAIN_READER)
    for rule in reader["rules"]:
        # A rule has to name a resource: the user may read nothing of this one.
        if "resources" in rule:
            rule["resources"] = [each for each in rule["resources"] if each not in resources] or ["none"]
    (folder / "role.yaml").write_text(json.dumps(reader))
    return accounts.person_kubeconfig(cluster, folder, folder / "role.yaml")


async def test_a_kind_that_may_not_be_listed_is_named(tmp_path: Path, called: Called) -> None:
    """An explanation without it may be wrong, so that it says so, later too; roles of earlier releases lack devices."""
    snapshot = str(tmp_path / "s.json")
    async with served(tmp_path) as cluster:
        kubeconfig = kubeconfig_without(cluster, tmp_path, "resourceclaims")
        code, out, err = await called("explain", "web-0", "--kubeconfig", kubeconfig)
        _, _, taken = await called("snapshot", "-o", snapshot, "--kubeconfig", kubeconfig)
    (line,) = err.splitlines()
    assert code == 0
    assert line.startswith("Without ResourceClaim objects: ")
    assert 'cannot list resource "resourceclaims"' in line
    assert taken.splitlines()[:-1] == [line]
    assert await called("explain", "web-0", "--on", snapshot) == (code, out, err)
    _, _, drained = await called("simulate", "--drain", "node-0001", "--on", snapshot)
    assert drained.splitlines() == [line]


async def test_a_bundle_has_a_snapshot_without_the_kinds_that_may_not_be_listed(
    tmp_path: Path, called: Called
) -> None:
    """Other commands need these kinds and end; what reads the bundle says what its answer disregards."""
    path = tmp_path / "bundle.tar.gz"
    async with served(tmp_path) as cluster:
        kubeconfig = kubeconfig_without(cluster, tmp_path, "storageclasses", "poddisruptionbudgets")
        code, out, refused = await called("snapshot", "-o", "-", "--kubeconfig", kubeconfig)
        assert (code, out, len(refused.splitlines())) == (2, "", 1)
        flags = ("--url", "http://127.0.0.1:1", "--kubeconfig", kubeconfig)
        code, _, err = await called("bundle", "-o", str(path), *flags)
    assert code == 0
    named = [line for line in err.splitlines() if " objects of snapshot.json: missing: " in line]
    assert {line.partition(" ")[0] for line in named} == {"PodDisruptionBudget", "StorageClass"}
    with tarfile.open(path) as tar:
        manifest = tar.extractfile("affinity-scheduler-bundle/MANIFEST.txt")
        assert manifest is not None
        lines = manifest.read().decode().splitlines()
    assert set(named) <= set(lines)
    code, out, err = await called("explain", "web-3", "--on", str(path))
    assert code == 1
    assert "node-0001" in out
    assert {line.partition(" objects: ")[0] for line in err.splitlines()} == {
        "Without PodDisruptionBudget",
        "Without StorageClass",
    }


@pytest.mark.parametrize("resource", ["pods", "nodes"])
async def test_without_pods_or_nodes_a_bundle_has_no_snapshot(
    resource: str, tmp_path: Path, called: Called
) -> None:
    path = tmp_path / "bundle.tar.gz"
    async with served(tmp_path) as cluster:
        kubeconfig = kubeconfig_without(cluster, tmp_path, resource)
        flags = ("--url", "http://127.0.0.1:1", "--kubeconfig", kubeconfig)
        code, _, err = await called("bundle", "-o", str(path), *flags)
    assert code == 0
    (line,) = (line for line in err.splitlines() if line.startswith("snapshot.json: missing: "))
    assert f'cannot list resource "{resource}"' in line


async def test_a_lease_that_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    settings = default_settings()
    async with scripted(*[reply(b'{"metadata":{},"items":[3]}')] * 2) as script:
        (tmp_path / "k").write_text(kubeconfig_text(script.url))
        async with listing.connect(argparse.Namespace(kubeconfig=str(tmp_path / "k"))) as client:
            leases = await listing.list_leases(client, settings)
    assert leases.why_unknown("affinity-scheduler").startswith("Expected `object`")
