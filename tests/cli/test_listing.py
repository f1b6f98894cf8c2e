"""Servers that do not answer, and users that may not list all kinds."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from scheduler.cli.query import listing
from tests.cli.conftest import Called
from tests.cli.test_commands import served
from tests.support import accounts
from tests.support.cluster import kubeconfig_text
from tests.support.manifest_files import documents

pytestmark = pytest.mark.asyncio


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
    assert end.startswith(f"API server: {url}: found no answer")


async def test_a_kind_that_may_not_be_listed_is_named(tmp_path: Path, called: Called) -> None:
    """An explanation without it may be wrong, so that it says so; roles of earlier releases have no devices."""
    (reader,) = documents(accounts.EXPLAIN_READER)
    for rule in reader["rules"]:
        if "resource.k8s.io" in rule.get("apiGroups", ()):
            rule["resources"].remove("resourceclaims")
    role = tmp_path / "role.yaml"
    role.write_text(json.dumps(reader))
    async with served(tmp_path) as (cluster, _):
        token = accounts.new_account(cluster, "person", role)
        (tmp_path / "k").write_text(kubeconfig_text(cluster.url, token=token))
        code, _, err = await called("explain", "web-0", "--kubeconfig", str(tmp_path / "k"))
    (line,) = err.splitlines()
    assert code == 0
    assert line.startswith("Without ResourceClaim objects: ")
    assert 'cannot list resource "resourceclaims"' in line
