"""
The flag for feature gates.

Unlike upstream, gates that are generally available can be switched off too: both variants are built and tested.
"""

from typing import Final

from scheduler.model.semantics import DEFAULT_SEMANTICS, Gate, Semantics, semantics_of
from scheduler.settings.problems import Problems, shown

#: The values that Go's strconv.ParseBool reads.
BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
FLAG: Final = "--feature-gates"
_GATE_BY_NAME: Final = {gate.value: gate for gate in Gate}


def parse_feature_gates(text: str) -> Semantics:
    """
    Return the semantics after `text`, "A=true,B=false"; gates not named keep their defaults.

    Of several values for one gate the last counts, as upstream.

    Raises InvalidSettingsError naming each unknown gate and each value that is no boolean.
    """
    problems = Problems(FLAG)
    switched: dict[Gate, bool] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if name not in _GATE_BY_NAME:
            problems.found(shown(name), "an unrecognized feature gate", f"one of {', '.join(_GATE_BY_NAME)}")
        elif not equals:
            problems.found(shown(name), "no value", f"{name}=true or {name}=false")
        elif value not in BOOLEANS:
            problems.found(shown(name), shown(value), "true or false")
        else:
            switched[_GATE_BY_NAME[name]] = BOOLEANS[value]
    problems.raise_if_any()
    return semantics_of(DEFAULT_SEMANTICS.version, switched)
