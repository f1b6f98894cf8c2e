"""A recording's file: what is in it, and how long it gets."""

from __future__ import annotations

import gzip
import io
import json
import os
from itertools import count
from typing import Any

import pytest

from scheduler.daemon.kube.changes import Deleted
from scheduler.tools.explain.formats.recording_file import Mark
from scheduler.tools.shadow.cluster_recording import Recording

KEY = "shop/web"


def lines(file: io.BytesIO, *, compressed: bool = True) -> list[dict[str, Any]]:
    body = gzip.decompress(file.getvalue()) if compressed else file.getvalue()
    return [json.loads(line) for line in body.splitlines()]


def recording(file: io.BytesIO, *, compresses: bool = True, max_bytes: int = 1 << 30) -> Recording:
    seconds = count()
    return Recording(file, compresses=compresses, max_bytes=max_bytes, now_s=lambda: float(next(seconds)))


@pytest.mark.parametrize("compresses", [True, False])
def test_each_change_is_a_line_and_what_is_seen_again_is_none(*, compresses: bool) -> None:
    file = io.BytesIO()
    made = recording(file, compresses=compresses)
    made.on_object("Pod", KEY, b'{"a":1}')
    made.add(Mark.SYNCED)
    made.on_object("Pod", KEY, b'{"a":1}')
    made.flush()
    made.on_object("Pod", KEY, b'{"a":2}')
    made.on_deleted("Pod", Deleted(KEY, "u"))
    made.on_object("Pod", KEY, b'{"a":2}')
    made.add(Mark.INTERRUPTED)
    made.close()
    assert lines(file, compressed=compresses)[1:] == [
        {"atS": 1.0, "kind": "Pod", "object": {"a": 1}},
        {"atS": 2.0, "kind": "Synced"},
        {"atS": 3.0, "kind": "Pod", "object": {"a": 2}},
        {"atS": 4.0, "kind": "Pod", "deleted": {"namespace": "shop", "name": "web", "uid": "u"}},
        {"atS": 5.0, "kind": "Pod", "object": {"a": 2}},
        {"atS": 6.0, "kind": "Interrupted"},
    ]
    assert (made.n_lines, made.n_bytes) == (7, len(file.getvalue()))


@pytest.mark.parametrize("compresses", [True, False])
@pytest.mark.parametrize("lines_per_flush", [1, 1_000])
def test_the_file_is_never_longer_than_allowed(*, compresses: bool, lines_per_flush: int) -> None:
    """It has whole lines and an end, whatever is still in the packer when it is full."""
    file, limit = io.BytesIO(), 1 << 20
    made = recording(file, compresses=compresses, max_bytes=limit)
    number = 0
    while not made.is_full:
        for _ in range(lines_per_flush):
            number += 1
            made.on_object("Pod", f"shop/p{number}", json.dumps(os.urandom(400).hex()).encode())
        made.flush()
    made.close()
    assert limit / 2 < len(file.getvalue()) <= limit
    found = lines(file, compressed=compresses)
    assert len(found) == made.n_lines <= number
