"""The commands that the alerts' runbooks name in back-quotes."""

import re
import shlex
from typing import Any

from tests.monitoring.queries import ALERTS

PROGRAMS = ("kubectl", "affinity-scheduler")
_QUOTED = re.compile(r"`([^`]+)`")


def commands(rule: dict[str, Any]) -> list[list[str]]:
    """Return the words of each command of an alert's runbook."""
    return [
        words
        for text in _QUOTED.findall(rule["annotations"]["runbook"])
        if (words := shlex.split(text)) and words[0] in PROGRAMS
    ]


def rule_of(alert: str) -> dict[str, Any]:
    """Return the rule of an alert, whose name lacks the prefix here."""
    (found,) = (rule for rule in ALERTS if rule["alert"] == f"AffinityScheduler{alert}")
    return found
