"""The table of feature gates, and the defaults of a version."""

from pathlib import Path

import pytest

from scheduler.engine.model.semantics import (
    DEFAULT_SEMANTICS,
    GATE_CHANGES,
    GATE_DEPENDENCIES,
    WITHOUT_EFFECT,
    FeatureStage,
    Gate,
    Version,
    semantics_of,
)


@pytest.mark.parametrize("gate", Gate)
def test_changes_of_a_gate_are_in_order(gate: Gate) -> None:
    changes = GATE_CHANGES[gate]
    assert [change.since for change in changes] == sorted({change.since for change in changes})
    stages = [list(FeatureStage).index(change.stage) for change in changes]
    assert stages == sorted(stages)
    assert not any(change.default for change in changes if change.stage is FeatureStage.ALPHA)


@pytest.mark.parametrize(
    ("version", "off"),
    [
        pytest.param(
            Version(1, 36),
            {
                Gate.DRA_DEVICE_TAINT_RULES,
                Gate.STORAGE_CAPACITY_SCORING,
                Gate.TAINT_TOLERATION_COMPARISON_OPERATORS,
                Gate.VOLUME_LIMIT_SCALING,
            },
            id="1.36",
        ),
        pytest.param(Version(1, 39), {Gate.TAINT_TOLERATION_COMPARISON_OPERATORS}, id="the last default"),
        pytest.param(
            Version(1, 34),
            {
                Gate.DRA_DEVICE_TAINT_RULES,
                Gate.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING,
                Gate.NODE_DECLARED_FEATURES,
                Gate.NOMINATED_NODE_NAME_FOR_EXPECTATION,
                Gate.STORAGE_CAPACITY_SCORING,
                Gate.TAINT_TOLERATION_COMPARISON_OPERATORS,
                Gate.VOLUME_LIMIT_SCALING,
            },
            id="alpha, or not there yet",
        ),
        pytest.param(Version(1, 9), set(Gate), id="before all of them: 1.9 is no 1.36"),
    ],
)
def test_a_version_has_its_own_defaults(version: Version, off: set[Gate]) -> None:
    semantics = semantics_of(version)
    assert {gate for gate in Gate if not semantics.enabled(gate)} == off
    assert semantics.stages.keys() >= set(Gate) - off


def test_a_gate_has_an_effect_if_the_product_reads_it() -> None:
    """So that no gate is reported to be on that nothing reads."""
    table = "scheduler/engine/model/semantics.py"
    texts = [path.read_text() for path in Path("scheduler").rglob("*.py") if str(path) != table]
    read = {gate for gate in Gate if any(f"Gate.{gate.name}" in text for text in texts)}
    assert read == set(Gate)
    assert not WITHOUT_EFFECT & {gate.value for gate in Gate}


@pytest.mark.parametrize("version", [Version(1, minor) for minor in range(34, 38)], ids=str)
def test_the_defaults_of_a_version_need_no_gate_that_is_off(version: Version) -> None:
    semantics = semantics_of(version)
    assert all(map(semantics.enabled, (d for g in semantics.gates for d in GATE_DEPENDENCIES.get(g, ()))))


def test_equal_semantics_are_one_key() -> None:
    """However they were switched: memos have them in their keys."""
    gate = Gate.POD_LEVEL_RESOURCES
    switched = semantics_of(DEFAULT_SEMANTICS.version, {gate: True})
    assert {DEFAULT_SEMANTICS: 1}[switched] == 1
    assert semantics_of(DEFAULT_SEMANTICS.version, {gate: False}) != DEFAULT_SEMANTICS
    assert str(DEFAULT_SEMANTICS.version) == "1.36"
