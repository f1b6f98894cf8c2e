"""What one list after another says of a cache: late is not lost."""

from __future__ import annotations

import gc
import json

import msgspec
import pytest

from scheduler.kube.changes import Change, Deleted, Key, Upserted
from scheduler.kube.comparing import Comparison
from scheduler.kube.known import Known, Version

Told = list[tuple[str, str, int]]


def raw(name: str, uid: str, version: int) -> msgspec.Raw:
    meta = {"name": name, "uid": uid, "resourceVersion": str(version)}
    return msgspec.Raw(json.dumps({"metadata": meta}).encode())


def compared(told: Told, first: Told, meanwhile: Told, second: Told) -> tuple[int, list[Change[int]]]:
    """The divergences and what mends them; `meanwhile` the watch tells more, version 0 being a deletion."""
    known: Known[int] = Known(
        lambda document: int(msgspec.json.decode(document)["metadata"]["resourceVersion"])
    )
    for one in told:
        known.seen(raw(*one), [])
    comparison = Comparison(known)
    for one in first:
        comparison.first(raw(*one))
    comparison.end_first()
    for name, uid, version in meanwhile:
        (known.seen if version else known.gone)(raw(name, uid, version), [])
    for one in second:
        comparison.second(raw(*one))
    changes: list[Change[int]] = []
    return comparison.mend(changes), changes


A1, A2, B1 = ("a", "u", 1), ("a", "u", 2), ("a", "v", 3)
GONE = ("a", "u", 0)


@pytest.mark.parametrize(
    ("told", "first", "meanwhile", "second"),
    [
        pytest.param([A1], [A1], [], [A1], id="equal"),
        pytest.param([A2], [A1], [], [A2], id="the watch is ahead"),
        pytest.param([A1], [A2], [A2], [A2], id="an update was late"),
        pytest.param([], [A1], [A1], [A1], id="an addition was late"),
        pytest.param([A1], [], [GONE], [], id="a deletion was late"),
        pytest.param([], [A1], [], [], id="added and deleted while nobody looked"),
        pytest.param([A1], [], [], [A1], id="listed only the second time"),
        pytest.param([A1], [B1], [GONE, B1], [B1], id="recreated, and told late"),
        pytest.param([], [A1], [], [B1], id="another one by now, whose turn has not come"),
    ],
)
def test_what_is_late_is_not_lost(told: Told, first: Told, meanwhile: Told, second: Told) -> None:
    assert compared(told, first, meanwhile, second) == (0, [])


@pytest.mark.parametrize(
    ("told", "first", "second", "mended"),
    [
        pytest.param([A1], [A2], [A2], [Upserted(Key("", "a"), "u", 2)], id="a lost update"),
        pytest.param([], [A1], [A1], [Upserted(Key("", "a"), "u", 1)], id="a lost addition"),
        pytest.param([A1], [], [], [Deleted(Key("", "a"), "u")], id="a lost deletion"),
        pytest.param(
            [A1],
            [B1],
            [B1],
            [Deleted(Key("", "a"), "u"), Upserted(Key("", "a"), "v", 3)],
            id="a lost recreation",
        ),
    ],
)
def test_what_stays_lost_is_mended(told: Told, first: Told, second: Told, mended: list[Change[int]]) -> None:
    assert compared(told, first, [], second) == (1, mended)


def test_a_watch_that_moves_but_not_far_enough_is_mended() -> None:
    """It brought a version between what was told and what was listed."""
    n_mended, changes = compared([A1], [("a", "u", 5)], [A2], [("a", "u", 6)])
    assert (n_mended, changes) == (1, [Upserted(Key("", "a"), "u", 6)])


def test_what_a_late_watch_brings_after_the_list_is_old_news() -> None:
    """Lines that were on their way when the list overtook them change nothing any more."""
    known: Known[int] = Known(
        lambda document: int(msgspec.json.decode(document)["metadata"]["resourceVersion"])
    )
    changes: list[Change[int]] = []
    known.listed(raw(*B1), changes)
    for late in (A1, A2):
        assert known.seen(raw(*late), []) == str(late[2])
    known.gone(raw("a", "u", 2), changes)
    assert changes == [Upserted(Key("", "a"), "v", 3)]
    assert known.version_of(Key("", "a")) == Version("v", "3")


def test_what_is_known_of_all_objects_does_not_occupy_the_garbage_collector() -> None:
    """A copy of it is made for every comparison, and is young: it would be walked through twice."""
    known: Known[int] = Known(lambda _: 1)
    known.seen(raw(*A1), [])
    assert not gc.is_tracked(known.versions())
