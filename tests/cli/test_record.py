"""`record` on the embedded cluster: what is in the file, and flags that make no sense."""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import stat
import zlib
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.stimuli import PodGroupSeen, PodGroupsServed
from scheduler.sandbox.devcluster.kinds import CUSTOM_RESOURCE_DEFINITION, POD
from scheduler.tools.explain.recordings import recorded_events
from tests.cli.conftest import SECRET, Called, bind_pod, refused, served
from tests.cli.test_pod_groups import GANG
from tests.cli.test_rights import SHADOW
from tests.support import accounts, build
from tests.support.custom_kinds import KUBERNETES, definition, group, kind_at
from tests.support.forking import forked
from tests.support.waiting import until


async def test_what_was_recorded_is_compared(tmp_path: Path, called: Called) -> None:
    """With the rights of manifests/shadow. A pod is bound while the recording runs, and PodGroups are there."""
    file = tmp_path / "day.jsonl.gz"
    async with served(tmp_path) as cluster:
        cluster.store.create(CUSTOM_RESOURCE_DEFINITION, "", definition(KUBERNETES))
        kind = kind_at(cluster.store, KUBERNETES, "podgroups")
        cluster.store.create(kind, "default", group(KUBERNETES, "gang", GANG))
        kubeconfig = accounts.person_kubeconfig(cluster, tmp_path, SHADOW)
        process = await forked("scheduler", "record", "-o", str(file), "--kubeconfig", kubeconfig)
        assert b"Recording changes" in await process.stderr.readline()
        made = build.pod("new", spec={"schedulerName": "affinity-scheduler"})
        await bind_pod(cluster, cluster.store.create(POD, "default", made), "node-0005", "{}")
        await until(lambda: asyncio.to_thread(_shows_bind, file), what="the bind in the file")
        process.send_signal(signal.SIGTERM)
        _, err = await process.communicate()
    assert (process.returncode, err.decode().startswith(f"{file}: ")) == (0, True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SECRET not in gzip.decompress(file.read_bytes()).decode()
    of_ours = ("--of", "affinity-scheduler", "-o", "json")
    code, out, err_text = await called("shadow", "--recording", str(file), *of_ours)
    report = json.loads(out)
    assert (code, err_text) == (0, "")
    assert (report["bound"], report["alike"], report["differences"]) == (1, 1, [])
    events = [event for _, event in recorded_events(str(file), default_settings())]
    (seen,) = [event.group for event in events if isinstance(event, PodGroupSeen)]
    assert (seen.key.text, seen.min_count, seen.topology.required) == ("default/gang", 3, (build.ZONE,))
    is_served = {event.kind: event.is_served for event in events if isinstance(event, PodGroupsServed)}
    assert is_served[seen.key.kind]


def _shows_bind(file: Path) -> bool:
    body = zlib.decompressobj(wbits=31).decompress(file.read_bytes())
    return any(b'"name":"new"' in line and b'"nodeName"' in line for line in body.splitlines())


@pytest.mark.parametrize("command", ["record -o FILE", "shadow", "enforce --once"])
async def test_a_kind_that_may_not_be_listed_ends_a_command_with_one_line(
    command: str, tmp_path: Path, called: Called
) -> None:
    """Its list would be asked for again and again, and the command wait without a word."""
    role = tmp_path / "role.yaml"
    role.write_text(SHADOW.read_text().replace("[nodes, namespaces, ", "[nodes, "))
    words = command.replace("FILE", str(tmp_path / "file")).split()
    async with served(tmp_path) as cluster:
        kubeconfig = accounts.person_kubeconfig(cluster, tmp_path, role)
        line = await refused(called, *words, "--kubeconfig", kubeconfig)
    assert "403 Forbidden: namespaces is forbidden: " in line
    assert line.endswith("; a role with this right is missing\n")


async def test_a_recording_without_its_first_lists_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    async with served(tmp_path) as cluster:
        kubeconfig = accounts.person_kubeconfig(cluster, tmp_path, SHADOW)
        words = ("record", "-o", str(file), "--for", "1ms", "--kubeconfig", kubeconfig)
        process = await forked("scheduler", *words)
        _, err = await process.communicate()
    assert process.returncode == 2
    assert err.decode().splitlines()[-1].startswith(f"{file}: found an end before the first lists were whole")


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("-o", "x", "--max-size", "5"),
        ("-o", "x", "--max-size", "1Ki"),
        ("-o", "x", "--for", "-1s"),
        ("-o", ""),
        ("-o", "-"),
        ("-o", "x", "--kubeconfig", "/nothing"),
    ],
    ids=" ".join,
)
async def test_wrong_flags_are_one_line(
    flags: tuple[str, ...], called: Called, snapshot: SnapshotAssertion
) -> None:
    assert await refused(called, "record", *flags) == snapshot
