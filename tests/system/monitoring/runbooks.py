"""The commands that the alerts' runbooks name in back-quotes."""

import re
import shlex
from typing import Any

from tests.system.monitoring.queries import ALERTS

PROGRAMS = ("kubectl", "affinity-scheduler")
#: Of every alert's name.
PREFIX = "AffinityScheduler"
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
    (found,) = (rule for rule in ALERTS if rule["alert"] == f"{PREFIX}{alert}")
    return found


def command_with(alert: str, part: str) -> list[str]:
    """Return the words of the only command of an alert's runbook that contains `part`."""
    (found,) = (words for words in commands(rule_of(alert)) if part in " ".join(words))
    return found
