"""--feature-gates and --emulated-version, with the refusals of kube-scheduler 1.36."""

from __future__ import annotations

import pytest

from scheduler.daemon.settings.feature_gates import (
    RequestedSemantics,
    nearest_known,
    read_emulated_version,
    read_feature_gates,
)
from scheduler.daemon.settings.problems import InvalidSettingsError
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Gate, Semantics, Version, semantics_of

LEVEL = Gate.POD_LEVEL_RESOURCES
SPREAD = Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD
MERGE = Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD_SELECTOR_MERGE
COMPARISON = Gate.TAINT_TOLERATION_COMPARISON_OPERATORS
NESTED = Gate.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING


def semantics(gates: str, *versions: str) -> Semantics:
    return RequestedSemantics(read_emulated_version(versions), read_feature_gates(gates)).at(None)


GATES = {
    "nothing": ("", {}),
    "one off": (f"{NESTED}=false", {NESTED: False}),
    "two off": (f"{SPREAD}=false,{MERGE}=F", {SPREAD: False, MERGE: False}),
    "the component": (f"kube:{NESTED}=false,kube:{COMPARISON}=true", {NESTED: False, COMPARISON: True}),
    "spaces and a stray comma": (f" {NESTED} = false , ", {NESTED: False}),
    "the last counts": (f"{NESTED}=0,{NESTED}=1", {}),
    "gates without effect": ("SidecarContainers=false,DRAConsumableCapacity=false", {}),
    "all of a stage but those that are named": (
        f"AllAlpha=true,{Gate.STORAGE_CAPACITY_SCORING}=false",
        {COMPARISON: True, Gate.VOLUME_LIMIT_SCALING: True},
    ),
}


@pytest.mark.parametrize(("text", "changed"), GATES.values(), ids=GATES)
def test_gates_not_named_keep_upstreams_defaults(text: str, changed: dict[Gate, bool]) -> None:
    assert semantics(text) == semantics_of(DEFAULT_SEMANTICS.version, changed)


#: Each refusal as kube-scheduler 1.36.2 writes it after `err=`; its last known version is 1.36, and an unknown gate is
#: a warning there.
REFUSED_GATES = {
    "unknown": ("Foo=true", "unrecognized feature gate: Foo"),
    "no boolean": (
        f"{LEVEL}=maybe",
        f'invalid value of {LEVEL}=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax',
    ),
    "no value": (SPREAD, f"missing bool value for {SPREAD}"),
    "not there yet": (
        f"{COMPARISON}=true",
        f"cannot set feature gate {COMPARISON} to true, feature is PreAlpha at emulated version 1.34, "
        "min compatibility version 1.34",
    ),
    "another component": (f"other:{LEVEL}=true", "component not registered: other"),
    "with and without the component": (
        f"kube:{LEVEL}=true,{LEVEL}=false",
        "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
    ),
    "without what it needs": (
        f"{SPREAD}=false",
        f"{MERGE} is enabled, but depends on features that are disabled: [{SPREAD}]",
    ),
}
REFUSED_VERSIONS = {
    "too old": (["1.33"], "emulation version 1.33 is not between [1.34, 1.37]"),
    "too new": (["kube=1.38"], "emulation version 1.38 is not between [1.34, 1.37]"),
    "another component": (["foo=1.34"], "component not registered: foo"),
    "no version": (["abc"], 'could not parse "abc" as version'),
    "an empty version": (["kube="], 'could not parse "" as version'),
    "half a version": (["1"], 'illegal version string "1"'),
    "a patch version": (["1.34.1"], "patch version not allowed, got: kube=1.34.1"),
    "two versions": (["1.34,1.35"], "duplicate version flag, kube=1.34 and kube=1.35"),
    "the flag twice": (["1.34", "1.35"], "duplicate version flag, kube=1.34 and kube=1.35"),
}


@pytest.mark.parametrize(("gates", "line"), REFUSED_GATES.values(), ids=REFUSED_GATES)
def test_a_gate_is_refused_in_upstreams_words(gates: str, line: str) -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        semantics(gates, "1.34")
    assert caught.value.lines == (f"--feature-gates: {line}",)


def test_every_refused_gate_has_a_line() -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        semantics(f"Foo=true,{LEVEL}=maybe,{SPREAD}")
    assert len(caught.value.lines) == 3


@pytest.mark.parametrize(("versions", "line"), REFUSED_VERSIONS.values(), ids=REFUSED_VERSIONS)
def test_a_version_is_refused_in_upstreams_words(versions: list[str], line: str) -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        semantics("", *versions)
    assert caught.value.lines == (f"--emulated-version: {line}",)


@pytest.mark.parametrize(
    ("texts", "version"),
    [
        ((), None),
        (("",), None),
        (("kube=1.35",), (1, 35)),
        (("v1.34",), (1, 34)),
        ((" kube = 1.37.0",), (1, 37)),
    ],
)
def test_a_version_has_upstreams_forms(texts: tuple[str, ...], version: tuple[int, int] | None) -> None:
    assert read_emulated_version(texts) == version


def test_without_a_flag_the_version_is_the_servers() -> None:
    """Else the nearest one: an unknown server is emulated as well as can be."""
    asked = RequestedSemantics(switched=read_feature_gates(f"{NESTED}=false"))
    assert asked.at(Version(1, 37)) == semantics_of(Version(1, 37), {NESTED: False})
    with pytest.raises(InvalidSettingsError, match="is PreAlpha at emulated version"):
        asked.at(Version(1, 34))
    nearest = [nearest_known(version) for version in (Version(1, 9), Version(1, 35), Version(2, 0), None)]
    assert nearest == [(1, 34), (1, 35), (1, 37), (1, 36)]
    assert RequestedSemantics(Version(1, 34)).at(Version(1, 37)).version == (1, 34)


def test_a_gate_that_nothing_reads_is_noted() -> None:
    """The command line of kube-scheduler works unchanged."""
    gates = read_feature_gates(f"SchedulerAsyncAPICalls=true,{LEVEL}=true,AllAlpha=false")
    asked = RequestedSemantics(switched=gates)
    assert asked.notes == ("--feature-gates: SchedulerAsyncAPICalls has no effect: nothing here reads it",)
    several = read_feature_gates("SidecarContainers=false,SchedulerAsyncAPICalls=true")
    assert RequestedSemantics(switched=several).notes == (
        "--feature-gates: SidecarContainers, SchedulerAsyncAPICalls have no effect: nothing here reads them",
    )
    assert RequestedSemantics(switched=read_feature_gates(f"{LEVEL}=true")).notes == ()
    assert asked.at(None) == semantics_of(DEFAULT_SEMANTICS.version, {LEVEL: True})
