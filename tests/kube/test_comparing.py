"""What one list after another says of a cache: late is not lost."""

from __future__ import annotations

import gc
import json
import random
from collections import deque
from collections.abc import Iterator

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
    list(comparison.note())
    for one in first:
        comparison.first(raw(*one))
    comparison.end_first()
    for name, uid, version in meanwhile:
        (known.seen if version else known.gone)(raw(name, uid, version), [])
    for one in second:
        comparison.second(raw(*one))
    mended = list(comparison.mend())
    return sum(n for n, _ in mended), [change for _, changes in mended for change in changes]


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
    assert [part for part in known.versions() if part and gc.is_tracked(part)] == []


def test_a_comparison_looks_at_few_objects_at_once() -> None:
    """When it begins, and where it has much to mend; others have their turn between two steps."""
    known: Known[int] = Known(lambda _: 1)
    for number in range(10_000):
        known.seen(raw(f"pod-{number}", "u", 1), [])
    comparison = Comparison(known)
    lengths = [len(part) for part, _ in zip(known.versions(), comparison.note(), strict=True)]
    assert sum(lengths) == len(known) == 10_000
    assert max(lengths) < 400
    comparison.end_first()
    assert comparison.n_suspects == 10_000
    n_mended = [n for n, _ in comparison.mend()]
    assert (sum(n_mended), len(known)) == (10_000, 0)
    assert max(n_mended) <= 20


class _Collection:
    """A server's objects, a watch that is behind, and what it has told; `play` lets some of that move."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.known: Known[int] = Known(
            lambda document: int(msgspec.json.decode(document)["metadata"]["resourceVersion"])
        )
        self.objects: dict[str, tuple[str, int]] = {}
        self._events: deque[tuple[str, str, int, bool]] = deque()
        self._version = 0
        #: Objects of which an event was lost; nothing happens to them any more.
        self.lost: set[str] = set()

    def change(self, name: str, *, lose: bool = False) -> None:
        self._version += 1
        known = self.objects.get(name)
        if known is not None and self.chance.random() < 0.5:
            del self.objects[name]
        else:
            uid = f"uid-{self._version}" if known is None else known[0]
            self.objects[name] = (uid, self._version)
        if lose:
            self.lost.add(name)
        else:
            uid = known[0] if known is not None else self.objects[name][0]
            self._events.append((name, uid, self._version, name in self.objects))

    def deliver(self, n_events: int) -> None:
        for _ in range(min(n_events, len(self._events))):
            name, uid, version, exists = self._events.popleft()
            (self.known.seen if exists else self.known.gone)(raw(name, uid, version), [])

    def deliver_all(self) -> None:
        self.deliver(len(self._events))

    def play(self) -> None:
        for _ in range(self.chance.randrange(3)):
            name = f"o{self.chance.randrange(60)}"
            if name not in self.lost:
                self.change(name)
        self.deliver(self.chance.randrange(4))

    def listed(self) -> Iterator[msgspec.Raw]:
        """One list: as it is when it begins."""
        for name, (uid, version) in sorted(self.objects.items()):
            self.play()
            yield raw(name, uid, version)

    def told(self) -> dict[str, tuple[str, int]]:
        versions = ((key.name, version) for part in self.known.versions() for key, version in part.items())
        return {name: (version.uid, int(version.resource_version)) for name, version in versions}


@pytest.mark.parametrize("seed", range(40))
def test_what_changes_during_a_comparison_is_neither_reported_nor_lost(seed: int) -> None:
    """Objects come, change and go between any two steps; of lost events every one is found, and nothing else."""
    server = _Collection(seed)
    for _ in range(60):
        server.change(f"o{server.chance.randrange(60)}")
    server.deliver_all()
    for number in server.chance.sample(range(60), seed % 8):
        server.change(f"o{number}", lose=True)
    differing = {name for name in server.lost if server.told().get(name) != server.objects.get(name)}
    comparison = Comparison(server.known)
    for _ in comparison.note():
        server.play()
    for document in server.listed():
        comparison.first(document)
    comparison.end_first()
    server.play()
    server.deliver_all()
    for document in server.listed():
        comparison.second(document)
    n_mended = 0
    for n_more, _ in comparison.mend():
        n_mended += n_more
        server.play()
    server.deliver_all()
    assert n_mended == len(differing) == len(server.lost)
    assert server.told() == server.objects
