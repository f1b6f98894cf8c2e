"""The table of feature gates, and the defaults of a version."""

import pytest

from scheduler.model.semantics import (
    DEFAULT_SEMANTICS,
    GATE_CHANGES,
    Gate,
    Stage,
    Version,
    semantics_of,
)


@pytest.mark.parametrize("gate", Gate)
def test_changes_of_a_gate_are_in_order(gate: Gate) -> None:
    changes = GATE_CHANGES[gate]
    assert [change.since for change in changes] == sorted({change.since for change in changes})
    stages = [list(Stage).index(change.stage) for change in changes]
    assert stages == sorted(stages)
    assert all(change.stage is Stage.GA for change in changes if change.is_locked)
    assert not any(change.default for change in changes if change.stage is Stage.ALPHA)


@pytest.mark.parametrize(
    ("version", "off"),
    [
        pytest.param(Version(1, 36), set(), id="every gate is on in 1.36"),
        pytest.param(Version(1, 38), set(), id="later versions keep the last default"),
        pytest.param(
            Version(1, 33),
            {Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD_SELECTOR_MERGE, Gate.POD_LEVEL_RESOURCES},
            id="alpha, or not there yet",
        ),
        pytest.param(Version(1, 9), set(Gate), id="before all of them: 1.9 is no 1.36"),
    ],
)
def test_a_version_has_its_own_defaults(version: Version, off: set[Gate]) -> None:
    semantics = semantics_of(version)
    assert {gate for gate in Gate if not semantics.enabled(gate)} == off


def test_equal_semantics_are_one_key() -> None:
    """However they were switched: memos have them in their keys."""
    gate = Gate.POD_LEVEL_RESOURCES
    switched = semantics_of(DEFAULT_SEMANTICS.version, {gate: True})
    assert {DEFAULT_SEMANTICS: 1}[switched] == 1
    assert semantics_of(DEFAULT_SEMANTICS.version, {gate: False}) != DEFAULT_SEMANTICS
    assert str(DEFAULT_SEMANTICS.version) == "1.36"
