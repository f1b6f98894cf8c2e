"""Snapshots as they are written; and as earlier versions wrote them: one JSON object with a list for each kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def header() -> dict[str, str]:
    """Return the first fields of an earlier snapshot."""
    return {"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterSnapshot"}


def objects_by_kind(snapshot: str | bytes) -> dict[str, list[Any]]:
    """Return the objects of each kind that was listed, and of other lines."""
    head, *lines, last = map(json.loads, snapshot.splitlines())
    assert (head["kind"], last["kind"]) == ("ClusterRecording", "Synced")
    found: dict[str, list[Any]] = {line["kind"]: [] for line in lines}
    for line in lines:
        found[line["kind"]] += [line["object"]] if "object" in line else []
    return found


def read_objects(file: Path | str) -> dict[str, list[Any]]:
    return objects_by_kind(Path(file).read_text())
