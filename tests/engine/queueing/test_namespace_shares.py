"""Shares of namespaces against a plain reference: which pods go first, and that none waits for ever."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.queueing.namespace_shares import BURST_S, MEMORY_S, NamespaceShares
from tests.engine.queueing.build import pod, queue_with

SHARE = 0.25
#: Multiples of an eighth, so that sums of them are exact.
EIGHTHS = st.integers(0, 16).map(lambda n: n / 8)


class ReferenceShares:
    """What each namespace has used, less its share of the time since, charge by charge."""

    def __init__(self) -> None:
        self.used: dict[str, tuple[Fraction, Fraction]] = {}

    def used_s(self, namespace: str, now_s: float) -> Fraction:
        used, at = self.used.get(namespace, (Fraction(0), Fraction(0)))
        return max(Fraction(0), used - (Fraction(now_s) - at) * Fraction(SHARE))

    def charge(self, namespace: str, used_s: float, now_s: float) -> None:
        most = Fraction(MEMORY_S) * Fraction(SHARE)
        used = min(most, self.used_s(namespace, now_s) + Fraction(used_s))
        self.used[namespace] = (used, Fraction(now_s))

    def is_over(self, namespace: str, now_s: float) -> bool:
        return self.used_s(namespace, now_s) > Fraction(BURST_S) * Fraction(SHARE)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.sampled_from([0, 0, 0, 5])),
        st.tuples(st.just("try"), st.booleans(), EIGHTHS),
        st.tuples(st.just("wait"), st.none(), EIGHTHS),
        st.tuples(st.just("delete"), st.integers(0, 5), st.none()),
        st.tuples(st.just("rank"), st.integers(0, 5), st.sampled_from([0, 5])),
    ),
    min_size=30,
    max_size=60,
)


@settings(max_examples=120, deadline=None)
@given(STEPS)
def test_pods_of_namespaces_over_their_share_come_after_others_of_equal_priority(steps):
    queue, reference = queue_with({}, namespace_share=SHARE), ReferenceShares()
    waiting: list[tuple[int, int, str]] = []
    now_s = 1000.0
    for number, (what, who, amount) in enumerate(steps):
        match what:
            case "add":
                queue.add(pod(f"{number}", namespace=who, priority=amount), now_s)
                waiting.append((-amount, number, who))
            case "try":
                expected = min(
                    waiting, key=lambda one: (one[0], reference.is_over(one[2], now_s), one[1]), default=None
                )
                popped = queue.pop(now_s)
                assert (popped and popped.uid) == (expected and f"{expected[1]}")
                now_s += amount
                queue.charge(amount, now_s)
                if expected is not None:
                    waiting.remove(expected)
                    reference.charge(expected[2], amount, now_s)
                    assert queue.n_namespaces_deprioritized >= reference.is_over(expected[2], now_s)
                if who:
                    queue.sweep(now_s)
            case "wait":
                now_s += amount
            case "delete" if who < len(waiting):
                queue.delete(f"{waiting.pop(who)[1]}")
            case "rank" if who < len(waiting):
                _, number_of_pod, namespace = waiting[who]
                queue.rank(f"{number_of_pod}", amount)
                waiting[who] = (-amount, number_of_pod, namespace)
    assert queue.depths()["active"] == len(waiting)


@settings(max_examples=50, deadline=None)
@given(st.lists(EIGHTHS, min_size=1, max_size=20), st.integers(1, 8).map(lambda n: n / 8))
def test_no_namespace_waits_for_ever_while_others_keep_coming(used_s, other_s):
    """However much its pods use, and although a pod of another namespace is always there."""
    queue, now_s = queue_with({}, namespace_share=SHARE), 1000.0
    for number in range(len(used_s)):
        queue.add(pod(f"{number}", namespace="heavy"), now_s)
    left, last_s = list(used_s), now_s
    while left:
        queue.add(pod(f"other-{now_s}-{len(left)}", namespace=f"other-{now_s}-{len(left)}"), now_s)
        popped = queue.pop(now_s)
        assert popped is not None
        is_heavy = popped.pod.namespace == "heavy"
        if is_heavy:
            assert popped.uid == f"{len(used_s) - len(left)}"
            assert now_s - last_s <= MEMORY_S + other_s
        cost_s = left.pop(0) if is_heavy else other_s
        now_s += cost_s
        queue.charge(cost_s, now_s)
        last_s = now_s if is_heavy else last_s


def test_a_share_of_nothing_lets_every_namespace_use_all():
    shares = NamespaceShares(0)
    shares.charge("a", 1000.0, 0.0)
    assert not shares.is_over("a", 0.0)
    queue = queue_with({})
    queue.add(pod("p"), 0.0)
    assert queue.pop(0.0) is not None
    queue.charge(1000.0, 0.0)
    assert queue.n_namespaces_deprioritized == 0, "unless it is set, as upstream"


@pytest.mark.parametrize(("used_s", "is_over"), [(SHARE * BURST_S, False), (SHARE * BURST_S + 0.125, True)])
def test_a_namespace_may_use_a_burst_at_once(used_s, is_over):
    shares = NamespaceShares(SHARE)
    shares.charge("a", used_s, 0.0)
    assert shares.is_over("a", 0.0) is is_over
    assert not shares.is_over("a", 0.5)
    shares.sweep(MEMORY_S)
    assert not shares._unused_at_s


@pytest.mark.parametrize(("now_s", "is_over"), [(7.875, True), (8.0, False)])
def test_what_is_held_against_a_namespace_is_bounded(now_s, is_over):
    """After 10 s at the most, of which it may use 2 s at once."""
    shares = NamespaceShares(1.0)
    shares.charge("a", 1000.0, 0.0)
    assert shares.is_over("a", now_s) is is_over


@pytest.mark.parametrize(("used_s", "is_over"), [(2.0, False), (2.125, True)])
def test_a_burst_is_two_seconds_of_all_time(used_s, is_over):
    shares = NamespaceShares(1.0)
    shares.charge("a", used_s, 0.0)
    assert shares.is_over("a", 0.0) is is_over
