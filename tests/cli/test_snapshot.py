"""`snapshot`: what is in the file, who may read it, and files that are none."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.sandbox.devcluster.kinds import POD
from tests.cli.conftest import SECRET, Called, refused, served
from tests.support.snapshots import header, objects_by_kind, read_objects


async def test_a_snapshot_has_no_secrets_and_only_its_owner_may_read_it(
    tmp_path: Path, called: Called
) -> None:
    """A pipe and a link are written to, not replaced by a file, or the pipe's reader would wait for ever."""
    file, pipe, link, target = (tmp_path / name for name in ("s.json", "pipe", "link", "target"))
    os.mkfifo(pipe)
    link.symlink_to(target)
    target.touch()
    async with served(tmp_path) as cluster:
        stored = json.dumps(cluster.store.revision(POD, "default", "web-0").obj)
        code, out, err = await called("snapshot", "-o", str(file))
        reading = asyncio.create_task(asyncio.to_thread(pipe.read_bytes))
        for path in (pipe, link):
            assert (await called("snapshot", "-o", str(path)))[0] == 0
        async with asyncio.timeout(10):
            piped = await reading
    text = file.read_text()
    assert (code, out, err.endswith("bytes\n")) == (0, "", True)
    assert (SECRET in stored, SECRET in text) == (True, False)
    assert {kind: len(objects_by_kind(text)[kind]) for kind in ("Node", "Pod")} == {"Node": 6, "Pod": 4}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []
    assert (pipe.is_fifo(), link.is_symlink()) == (True, True)
    assert len(objects_by_kind(piped)["Node"]) == len(read_objects(target)["Node"]) == 6


@pytest.mark.parametrize("command", ["snapshot", "bundle"])
async def test_a_file_without_a_name_is_one_line(command: str, called: Called) -> None:
    assert await refused(called, command, "-o", "") == "-o: found '', expected the name of a file\n"


def earlier(**more: object) -> str:
    return json.dumps({**header(), **more})


NOT_SNAPSHOTS = {
    "empty": "",
    "a list": "[]",
    "no version": "{}",
    "another version": earlier(apiVersion="affinity-scheduler.io/v2"),
    "another kind": earlier(kind="Explanation"),
    "no lists": earlier(pods={}),
    "forbidden kinds that are a list": earlier(forbidden=["Service"]),
    "a forbidden kind without a reason": earlier(forbidden={"Service": 1}),
}


@pytest.mark.parametrize("content", NOT_SNAPSHOTS.values(), ids=NOT_SNAPSHOTS)
async def test_what_is_no_snapshot_is_one_line(
    content: str, tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(content)
    code, out, err = await called("explain", "p", "--on", str(file))
    assert (code, out, err.count("\n"), err.partition(": ")[0]) == (2, "", 1, "DIR/snapshot.json")
    assert err == snapshot
