"""
The flags for the emulated version and for feature gates, with upstream's refusals.

Source: component-base/{compatibility/registry.go,compatibility/version.go,featuregate/feature_gate.go} (kubernetes
1.36). Differences: a gate that is unknown is refused, where upstream warns of it since 1.36 and goes on; one
that has no effect here is accepted with any value, and a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler.daemon.settings.problems import Problems, shown
from scheduler.engine.model.semantics import (
    DEFAULT_SEMANTICS,
    GATE_DEPENDENCIES,
    NEWEST,
    OLDEST,
    WITHOUT_EFFECT,
    FeatureStage,
    Gate,
    Semantics,
    Version,
    semantics_of,
)

#: The values that Go's strconv.ParseBool reads.
BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
#: For people.
KNOWN_VERSIONS: Final = f"{OLDEST} to {NEWEST}"
DEFAULT_VERSION: Final = str(DEFAULT_SEMANTICS.version)
FLAG: Final = "--feature-gates"
VERSION_FLAG: Final = "--emulated-version"
#: The only component, and what upstream takes a name without one for.
_COMPONENT: Final = "kube"
_MIXED: Final = (
    "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use"
)
_GATE_BY_NAME: Final = {gate.value: gate for gate in Gate}
#: Names that switch every gate of a stage that is not named itself.
_ALL_OF_STAGE: Final = {"AllAlpha": FeatureStage.ALPHA, "AllBeta": FeatureStage.BETA}
_NAMES: Final = _GATE_BY_NAME.keys() | _ALL_OF_STAGE.keys() | WITHOUT_EFFECT
#: Numbers with dots; upstream ignores what follows them.
_VERSION: Final = re.compile(r"\s*v?([0-9]+(?:\.[0-9]+)*)")


@dataclass(frozen=True, slots=True)
class RequestedSemantics:
    """
    The version and the gates that flags ask for.

    `version` is None for that of the API server. `switched` has gates by name, or `AllAlpha` and `AllBeta`.
    """

    version: Version | None = None
    switched: Mapping[str, bool] = field(default_factory=dict)

    def at(self, server: Version | None) -> Semantics:
        """
        Return the semantics of the version that was asked for, else of the nearest known one to the server's.

        Without a server, or if it does not say its version: of the default one. Raises InvalidSettingsError naming each
        gate that cannot be switched in that version.
        """
        version = self.version or nearest_known(server)
        problems = Problems(FLAG)
        of_version = semantics_of(version)
        for name, value in self.switched.items():
            if name in _GATE_BY_NAME and _GATE_BY_NAME[name] not in of_version.stages:
                minimum = of_version.minimum_compatibility
                refused = f"cannot set feature gate {name} to {shown(value)}, feature is PreAlpha"
                problems.add(
                    "", f"{refused} at emulated version {version}, min compatibility version {minimum}"
                )
        problems.raise_if_any()
        semantics = self.unchecked(version)
        for gate, needed in GATE_DEPENDENCIES.items():
            off = [each for each in needed if not semantics.enabled(each)]
            if semantics.enabled(gate) and off:
                problems.add(
                    "", f"{gate} is enabled, but depends on features that are disabled: [{' '.join(off)}]"
                )
        problems.raise_if_any()
        return semantics

    def unchecked(self, version: Version | None = None) -> Semantics:
        """Return the semantics of this version, or of the default one, whatever gates it has."""
        version = version or self.version or DEFAULT_SEMANTICS.version
        of_stage = {
            stage: self.switched[name] for name, stage in _ALL_OF_STAGE.items() if name in self.switched
        }
        stages = semantics_of(version).stages
        switched = {gate: of_stage[stage] for gate, stage in stages.items() if stage in of_stage}
        named = {_GATE_BY_NAME[name]: on for name, on in self.switched.items() if name in _GATE_BY_NAME}
        return semantics_of(version, switched | named)

    @property
    def notes(self) -> tuple[str, ...]:
        """A line that names the gates that are switched without effect here, if there are any."""
        names = [name for name in self.switched if name in WITHOUT_EFFECT]
        have, them = ("has", "it") if len(names) == 1 else ("have", "them")
        return (f"{FLAG}: {', '.join(names)} {have} no effect: nothing here reads {them}",) if names else ()


def nearest_known(version: Version | None) -> Version:
    """Return the version if it can be emulated, else the nearest that can; the default one for None."""
    return DEFAULT_SEMANTICS.version if version is None else min(max(version, OLDEST), NEWEST)


def read_feature_gates(text: str) -> Mapping[str, bool]:
    """Return the gates of "A=true,B=false" by name; the last of several values counts. Raises InvalidSettingsError."""
    problems = Problems(FLAG)
    switched: dict[str, bool] = {}
    has_component: set[bool] = set()
    for pair in filter(None, (part.strip() for part in text.split(","))):
        component, colon, rest = pair.rpartition(":")
        name, equals, value = (part.strip() for part in rest.partition("="))
        has_component.add(bool(colon))
        if colon and component.strip() != _COMPONENT:
            problems.add("", f"component not registered: {component.strip()}")
        elif not equals:
            problems.add("", f"missing bool value for {name}")
        elif value not in BOOLEANS:
            problems.add(
                "",
                f"invalid value of {name}={value}, err: strconv.ParseBool: parsing {shown(value)}: invalid syntax",
            )
        elif name not in _NAMES:
            problems.add("", f"unrecognized feature gate: {name}")
        else:
            switched[name] = BOOLEANS[value]
    if len(has_component) > 1:
        problems.add("", _MIXED)
    problems.raise_if_any()
    return switched


def read_emulated_version(texts: Iterable[str]) -> Version | None:
    """Return the version of "kube=1.34" or "1.34", None without one. Raises InvalidSettingsError."""
    problems = Problems(VERSION_FLAG)
    versions: list[Version] = []
    for text in ",".join(texts).split(","):
        component, equals, number = (part.strip() for part in text.rpartition("="))
        if equals and component != _COMPONENT:
            problems.add("", f"component not registered: {component}")
        elif text and (version := _read_version(number, problems)) is not None:
            versions.append(version)
    if len(versions) > 1:
        problems.add(
            "", "duplicate version flag, " + " and ".join(f"{_COMPONENT}={each}" for each in versions[:2])
        )
    problems.raise_if_any()
    return versions[0] if versions else None


def _read_version(text: str, problems: Problems) -> Version | None:
    match = _VERSION.match(text)
    numbers = [int(part) for part in match.group(1).split(".")] if match else []
    version = Version(*numbers[:2]) if len(numbers) > 1 else None
    if match is None:
        problems.add("", f"could not parse {shown(text)} as version")
    elif version is None:
        problems.add("", f"illegal version string {shown(text)}")
    elif any(numbers[2:]):
        problems.add("", f"patch version not allowed, got: {_COMPONENT}={match.group(1)}")
    elif not OLDEST <= version <= NEWEST:
        problems.add("", f"emulation version {version} is not between [{OLDEST}, {NEWEST}]")
    return version
