"""Selectors of devices: a CEL expression compiled once and evaluated per device."""

from dataclasses import dataclass

from scheduler.cel.device import DeviceFields


@dataclass(frozen=True, slots=True)
class CompileError:
    """Why an expression is no selector, in upstream's words (without the prefix "CEL compile error: ")."""

    text: str


@dataclass(frozen=True, slots=True)
class EvaluationError:
    """Why a selector has no answer for a device, in upstream's words (without "CEL runtime error: ")."""

    text: str


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled expression. Immutable, so it may be shared and remembered."""

    expression: str

    def matches(self, device: DeviceFields) -> bool | EvaluationError:
        """Return whether the device is selected. Bounded by the cost limit of a selector."""
        raise NotImplementedError


def compile_selector(expression: str) -> Selector | CompileError:
    """Return the expression compiled for the variable `device`, or why it does not compile."""
    raise NotImplementedError
