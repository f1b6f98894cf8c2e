"""Orders of proven races never contradict each other, by a plain search over all orders."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.tools.shadow.orders import ProvenOrders

_KEYS = [("Pod", name) for name in "abcde"]


def _has_order(proven: list[tuple[int, set[int], set[int]]]) -> bool:
    """Return whether one order of all changes has each decision between its changes."""
    for order in permutations(range(len(_KEYS))):
        place = {number: at for at, number in enumerate(order)}
        if all(
            all(place[one] < place[decision] for one in before)
            and all(place[decision] < place[one] for one in after)
            for decision, before, after in proven
        ):
            return True
    return False


_NUMBERS = st.integers(0, len(_KEYS) - 1)


@given(
    st.lists(st.tuples(_NUMBERS, st.sets(_NUMBERS, max_size=2), st.sets(_NUMBERS, max_size=2)), max_size=6)
)
def test_what_is_proven_has_one_order_and_what_is_not_has_none(
    asked: list[tuple[int, set[int], set[int]]],
) -> None:
    orders = ProvenOrders()
    proven: list[tuple[int, set[int], set[int]]] = []
    for decision, before, after in asked:
        others = before - {decision}, after - {decision} - before
        found = orders.prove(
            _KEYS[decision], [_KEYS[one] for one in others[0]], [_KEYS[one] for one in others[1]]
        )
        assert found == _has_order([*proven, (decision, *others)])
        if found:
            proven.append((decision, *others))
