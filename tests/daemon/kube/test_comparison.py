"""Comparisons of a store with two lists: late events are not reported, lost ones are."""

from __future__ import annotations

import gc
import json
import random
from collections import deque
from collections.abc import Iterator

import msgspec
import pytest

from scheduler.daemon.kube.changes import Change, Deleted, Upserted
from scheduler.daemon.kube.comparison import Comparison
from scheduler.daemon.kube.store import ObjectVersion, Store


def raw(name: str, uid: str, version: int) -> msgspec.Raw:
    meta = {"name": name, "uid": uid, "resourceVersion": str(version)}
    return msgspec.Raw(json.dumps({"metadata": meta}).encode())


def new_store() -> Store[int]:
    return Store(lambda document: int(msgspec.json.decode(document)["metadata"]["resourceVersion"]))


def begun() -> tuple[Store[int], Comparison[int]]:
    """Return a store with the object a, and a comparison that has noted it."""
    store = new_store()
    store.upsert(raw("a", "u", 1), [])
    comparison = Comparison(store)
    list(comparison.note_stored())
    return store, comparison


def test_an_event_between_two_versions_does_not_hide_a_lost_one() -> None:
    """The watch delivered a version between the stored and the listed one."""
    store, comparison = begun()
    comparison.compare_first(raw("a", "u", 5))
    comparison.end_first()
    store.upsert(raw("a", "u", 2), [])
    comparison.compare_second(raw("a", "u", 6))
    assert list(comparison.repair()) == [(1, [Upserted("a", "u", 6)])]


def test_an_object_recreated_after_both_lists_is_kept() -> None:
    store, comparison = begun()
    comparison.end_first()
    store.delete(raw("a", "u", 2), [])
    store.upsert(raw("a", "v", 3), [])
    assert list(comparison.repair()) == [(0, [])]


def test_watch_events_older_than_the_list_change_nothing() -> None:
    """They were on their way when the list overtook them; an object may have left the field selector and returned."""
    store = new_store()
    changes: list[Change[int]] = []
    store.upsert(raw("a", "v", 3), changes, is_listed=True)
    for late in (("a", "u", 1), ("a", "v", 2)):
        assert store.upsert(raw(*late), changes) == str(late[2])
    for late in (("a", "u", 1), ("a", "v", 2), ("a", "u", 4)):
        assert store.delete(raw(*late), changes) == str(late[2])
    assert changes == [Upserted("a", "v", 3)]
    assert store.version_of("a") == ObjectVersion("v", "3")
    store.delete(raw("a", "v", 4), changes)
    assert changes[1:] == [Deleted("a", "v")]


def test_copies_of_the_versions_are_not_tracked_by_the_garbage_collector() -> None:
    """Each comparison makes one, which the collector would traverse twice."""
    store: Store[int] = Store(lambda _: 1)
    store.upsert(raw("a", "u", 1), [])
    assert [part for part in store.copy_versions() if part and gc.is_tracked(part)] == []


def test_a_comparison_works_in_small_steps() -> None:
    """At its beginning and while it repairs; other tasks run between two steps."""
    store: Store[int] = Store(lambda _: 1)
    for number in range(10_000):
        store.upsert(raw(f"pod-{number}", "u", 1), [])
    comparison = Comparison(store)
    lengths = [len(part) for part, _ in zip(store.copy_versions(), comparison.note_stored(), strict=True)]
    assert sum(lengths) == len(store) == 10_000
    assert max(lengths) < 400
    comparison.end_first()
    assert comparison.n_suspects == 10_000
    n_mended = [n for n, _ in comparison.repair()]
    assert (sum(n_mended), len(store)) == (10_000, 0)
    assert max(n_mended) <= 20


class _Collection:
    """The objects of a server, a watch that lags behind, and its store; `play` advances them at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = new_store()
        self.objects: dict[str, tuple[str, int]] = {}
        self._events: deque[tuple[str, str, int, bool]] = deque()
        self._version = 0
        #: Objects with a lost event; they do not change again.
        self.lost: set[str] = set()

    def change(self, name: str, *, lose: bool = False) -> None:
        self._version += 1
        store = self.objects.get(name)
        if store is not None and self.rng.random() < 0.5:
            del self.objects[name]
        else:
            uid = f"uid-{self._version}" if store is None else store[0]
            self.objects[name] = (uid, self._version)
        if lose:
            self.lost.add(name)
        else:
            uid = store[0] if store is not None else self.objects[name][0]
            self._events.append((name, uid, self._version, name in self.objects))

    def deliver(self, n_events: int) -> None:
        for _ in range(min(n_events, len(self._events))):
            name, uid, version, exists = self._events.popleft()
            (self.store.upsert if exists else self.store.delete)(raw(name, uid, version), [])

    def deliver_all(self) -> None:
        self.deliver(len(self._events))

    def play(self) -> None:
        for _ in range(self.rng.randrange(3)):
            name = f"o{self.rng.randrange(60)}"
            if name not in self.lost:
                self.change(name)
        self.deliver(self.rng.randrange(4))

    def listed(self) -> Iterator[msgspec.Raw]:
        """Yield one list, in its state at the beginning."""
        for name, (uid, version) in sorted(self.objects.items()):
            self.play()
            yield raw(name, uid, version)

    def stored(self) -> dict[str, tuple[str, int]]:
        versions = (
            (name, ObjectVersion.of(packed))
            for part in self.store.copy_versions()
            for name, packed in part.items()
        )
        return {name: (version.uid, int(version.resource_version)) for name, version in versions}


@pytest.mark.parametrize("seed", range(40))
def test_changes_during_a_comparison_are_neither_reported_nor_lost(seed: int) -> None:
    """Objects change between any two steps; exactly the lost events are found."""
    server = _Collection(seed)
    for _ in range(60):
        server.change(f"o{server.rng.randrange(60)}")
    server.deliver_all()
    for number in server.rng.sample(range(60), seed % 8):
        server.change(f"o{number}", lose=True)
    differing = {name for name in server.lost if server.stored().get(name) != server.objects.get(name)}
    comparison = Comparison(server.store)
    for _ in comparison.note_stored():
        server.play()
    for document in server.listed():
        comparison.compare_first(document)
    comparison.end_first()
    server.play()
    server.deliver_all()
    for document in server.listed():
        comparison.compare_second(document)
    n_mended = 0
    for n_more, _ in comparison.repair():
        n_mended += n_more
        server.play()
    server.deliver_all()
    assert n_mended == len(differing) == len(server.lost)
    assert server.stored() == server.objects
