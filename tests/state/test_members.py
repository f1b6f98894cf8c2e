"""A set of numbered things is a set, few or many, and takes little room where it is large."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import dataclass

import pytest

from scheduler.model.labels import EVERYTHING, Requirement, Selector
from scheduler.state.cluster import ClusterState
from scheduler.state.matching import NamespaceRule, PodMatcher
from scheduler.state.members import Members, Roll


@dataclass(eq=False)
class Thing:
    number: int = -1


@pytest.mark.parametrize("n_things", [10, 70, 500])
def test_it_is_a_set_whatever_comes_and_goes(n_things: int) -> None:
    """Through both representations and back; numbers are given out again."""
    chance, roll = random.Random(n_things), Roll[Thing]()
    things = [Thing() for _ in range(n_things)]
    for each in things:
        roll.enter(each)
    members, model = Members(roll), set[Thing]()
    for step in range(4000):
        one = chance.choice(things)
        if chance.random() < (0.8 if step % 1000 < 500 else 0.1):
            members.add(one)
            model.add(one)
        else:
            members.discard(one)
            model.discard(one)
        if step % 97 == 0:
            members.discard(one)
            model.discard(one)
            roll.leave(one)
            things.remove(one)
            things.append(Thing())
            roll.enter(things[-1])
            assert one not in members
        assert len(members) == len(model)
        assert (one in members) == (one in model)
        if step % 50 == 0:
            assert set(members) == model
    assert sorted(one.number for one in things) == list(range(n_things))
    assert set(Members(roll, model)) == model


@pytest.mark.parametrize(("n_mine", "n_theirs"), [(10, 20), (90, 10), (10, 90), (90, 200), (200, 90)])
def test_who_is_not_among_the_others(n_mine: int, n_theirs: int) -> None:
    """Whichever of them are many."""
    chance, roll = random.Random(n_mine), Roll[Thing]()
    things = [Thing() for _ in range(300)]
    for each in things:
        roll.enter(each)
    mine, theirs = chance.sample(things, n_mine), chance.sample(things, n_theirs)
    assert set(Members(roll, mine).without(Members(roll, theirs))) == set(mine) - set(theirs)


def test_members_may_go_while_many_are_listed() -> None:
    roll = Roll[Thing]()
    things = [Thing() for _ in range(100)]
    for each in things:
        roll.enter(each)
    members = Members(roll, things)
    for each in members:
        members.discard(each)
    assert len(members) == 0
    assert list(members) == []


def test_who_matches_whom_takes_no_gigabytes() -> None:
    """Five hundred selections that select five hundred label sets: 20 MB as sets, one as bits."""
    state = ClusterState()
    for number in range(500):
        state.selections.label_set("default", {"index": str(number)})
    tracemalloc.start()
    try:
        everywhere = NamespaceRule(frozenset(), EVERYTHING)
        for number in range(500):
            selector = Selector((Requirement(f"nonce-{number}", "DoesNotExist"),))
            found = state.selections.selection(PodMatcher(((everywhere, selector),)))
        assert len(found.label_sets) == 500
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 2e6
    for label_set in state.selections.label_sets():
        assert len(label_set.selections) == 500
    for _ in range(4):
        state.sweep()
    assert list(state.selections.selections()) == []
    assert list(state.selections.label_sets()) == []
