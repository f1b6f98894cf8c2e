"""A pod for which plugins name nodes: what it is told if none is left, in upstream's words."""

from __future__ import annotations

import pytest

from scheduler.core.decide import _no_node_left


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        (("Mine",), "node(s) didn't satisfy plugin Mine"),
        (("Mine", "Also"), "node(s) didn't satisfy plugin(s) [Also Mine] simultaneously"),
    ],
)
def test_the_plugins_that_leave_no_node_are_named(plugins: tuple[str, ...], message: str) -> None:
    assert _no_node_left(dict.fromkeys(plugins, frozenset())).message == message
