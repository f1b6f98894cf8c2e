"""Which pods a constraint counts."""

from __future__ import annotations

import pytest

from scheduler.engine.model.terms import SpreadConstraint
from scheduler.engine.state.matching import spread_matcher, spread_selector
from scheduler.engine.syntax.selectors import EVERYTHING, NOTHING, Requirement, Selector

WEB = Selector((Requirement("app", "In", ("web",)),))


@pytest.mark.parametrize(
    ("labels", "is_counted"),
    [
        pytest.param({"app": "web", "version": "2"}, True, id="its own version"),
        pytest.param({"app": "web", "version": "1"}, False, id="another version"),
        pytest.param({"app": "web"}, False, id="without a version"),
        pytest.param({"app": "db", "version": "2"}, False, id="another app"),
    ],
)
def test_a_constraint_counts_pods_that_share_the_values_of_its_keys(
    labels: dict[str, str], is_counted: bool
) -> None:
    """A key that the pod itself lacks says nothing."""
    constraint = SpreadConstraint(1, "zone", True, WEB, match_label_keys=("version", "absent"))
    matcher = spread_matcher(spread_selector(constraint, {"app": "web", "version": "2"}), "default")
    assert matcher is not None
    assert matcher.matches("default", labels, None) is is_counted
    assert not matcher.matches("elsewhere", labels, None)


@pytest.mark.parametrize("selector", [NOTHING, EVERYTHING])
def test_a_constraint_whose_selector_is_empty_counts_no_pod(selector: Selector) -> None:
    constraint = SpreadConstraint(1, "zone", True, selector, match_label_keys=("version",))
    assert spread_matcher(spread_selector(constraint, {}), "default") is None


def test_a_key_makes_an_empty_selector_count_pods() -> None:
    constraint = SpreadConstraint(1, "zone", True, EVERYTHING, match_label_keys=("version",))
    matcher = spread_matcher(spread_selector(constraint, {"version": "2"}), "default")
    assert matcher is not None
    assert matcher.matches("default", {"version": "2"}, None)
    assert not matcher.matches("default", {"version": "1"}, None)
