"""
What keeps a rule of the user's from changing the state: while it runs, methods that are not for it raise.

The rule gets the same view as the built-in plugins. Arrays and mappings that it gets cannot be written to; this covers
methods that change the state, or return what is patched in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

_RUNS_RULE: Final = ContextVar("a rule runs", default=False)
_Owner = TypeVar("_Owner")
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


@contextmanager
def running_rule() -> Iterator[None]:
    """Let the methods that are not for rules raise AttributeError within the block."""
    token = _RUNS_RULE.set(True)
    try:
        yield
    finally:
        _RUNS_RULE.reset(token)


def refuse_rule(method: str) -> None:
    """Raise AttributeError while a rule runs; for methods that each decision calls, where the decorator costs more."""
    if _RUNS_RULE.get():
        raise AttributeError(f"{method} is not part of the plugin contract; a plugin only reads")


def not_for_rules(
    method: Callable[Concatenate[_Owner, _Parameters], _Result],
) -> Callable[Concatenate[_Owner, _Parameters], _Result]:
    """Return the method, which raises AttributeError while a rule of the user's runs."""

    @wraps(method)
    def guarded(owner: _Owner, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        refuse_rule(method.__name__)
        return method(owner, *args, **kwargs)

    return guarded
