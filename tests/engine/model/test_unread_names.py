"""Labels and annotations that look like rules of ours, and that nothing reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.unread_names import ANNOTATIONS, LABELS, PREFIX, unread_notes
from tests.support import build

ROOT = Path(__file__).parents[3]
#: Names under the prefix that are none of pods: conditions, of namespaces, of Leases, of files.
ELSEWHERE = {"Fallback", "Whole", "annotation-reach", "bound-until", "v1", "v2"}


def notes(
    labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None, **fields: object
) -> tuple[str, ...]:
    document = build.pod(labels=labels, annotations=annotations, spec=dict(fields))
    return unread_notes(PodDecoder().decode(msgspec.json.encode(document)).unread)


_GROUP = f"{PREFIX}pod-group"


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({}, {f"{PREFIX}afinity": "{}"}),
        ({f"{PREFIX}podgroup": "g"}, {}),
        ({f"{PREFIX}affinity": "a"}, {}),
        ({_GROUP: "g"}, {f"{_GROUP}-min-count": "1", f"{_GROUP}-move-after-seconds": "60"}),
        ({}, {f"{PREFIX}zzz\nz": "1"}),
        ({}, {"kueue.x-k8s.io/podset-required-topology": "rack"}),
    ],
    ids=["misspelt", "a misspelt label", "no annotation", "an older name", "unknown", "without a group"],
)
def test_what_nothing_reads_is_told(
    labels: dict[str, str], annotations: dict[str, str], snapshot: SnapshotAssertion
) -> None:
    (note,) = notes(labels, annotations)
    assert note == snapshot


def test_what_is_read_is_not_told() -> None:
    assert notes({"app": "a"}, {"prometheus.io/scrape": "true"}) == ()
    assert notes(dict.fromkeys(LABELS, "1"), dict.fromkeys(ANNOTATIONS, "1")) == ()
    kueue = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    assert notes({f"{PREFIX}pod-group": "g", f"{PREFIX}pod-group-min-count": "1"}, kueue) == ()
    assert notes({}, kueue, schedulingGroup={"podGroupName": "g"}) == ()


def test_of_thousands_a_few_are_told() -> None:
    assert len(notes({}, {f"{PREFIX}{number}": "" for number in range(5_000)})) == 4


def test_every_name_in_the_source_is_known_or_is_none_of_pods() -> None:
    """So a new annotation is not said to have no effect."""
    named: set[str] = set()
    for path in (ROOT / "scheduler").rglob("*.py"):
        if "sandbox" not in path.parts:
            named.update(re.findall(r'"affinity-scheduler\.io/([\w-]+)"', path.read_text()))
    assert {f"{PREFIX}{name}" for name in named - ELSEWHERE} == ANNOTATIONS
