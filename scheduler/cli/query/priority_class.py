"""The PriorityClass that `simulate --priority-class` gives to new pods."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from scheduler.cli.query.listing import connect
from scheduler.errors import NotFound, SettingsError
from scheduler.kube.requests import Request, escaped
from scheduler.model.pods import Pod

_FLAG: Final = "--priority-class"
_TIMEOUT_S: Final = 60.0
_NUMBER: Final = re.compile(r"-?\d{1,10}")
#: The highest value that users may give to a class.
_HIGHEST: Final = 1_000_000_000
#: The classes that every cluster has.
_BUILT_IN: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class _Stored(msgspec.Struct, frozen=True, rename="camel"):
    value: int = 0
    preemption_policy: str | None = None


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """The fields of a PriorityClass that the API server copies into a pod's spec."""

    priority: int
    may_preempt: bool = True

    def applied_to(self, pod: Pod) -> Pod:
        """Return the pod as one of this class."""
        return replace(pod, priority=self.priority, may_preempt=self.may_preempt)


async def read_priority_class(args: argparse.Namespace) -> PriorityClass | None:
    """Return the class that the arguments name, by name or by value; None if they name none. Raises SettingsError."""
    name: str | None = args.priority_class
    if name is None:
        return None
    if name in _BUILT_IN:
        return PriorityClass(_BUILT_IN[name])
    if _NUMBER.fullmatch(name):
        if not -(2**31) <= int(name) <= _HIGHEST:
            raise SettingsError(_FLAG, "", name, f"a value from {-(2**31)} to {_HIGHEST}")
        return PriorityClass(int(name))
    if args.on:
        raise SettingsError(_FLAG, "", name, "its value: a snapshot has no PriorityClasses")
    async with connect(args.kubeconfig, args.context, os.environ) as client:
        try:
            data = await client.request(_get(name), timeout_s=_TIMEOUT_S)
        except NotFound:
            raise SettingsError(_FLAG, "", name, "the name or the value of a PriorityClass") from None
    found = msgspec.json.decode(data, type=_Stored)
    return PriorityClass(found.value, found.preemption_policy != "Never")


def _get(name: str) -> Request:
    return Request("GET", f"/apis/scheduling.k8s.io/v1/priorityclasses/{escaped(name)}", "get")
