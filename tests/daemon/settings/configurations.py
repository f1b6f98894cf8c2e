"""Configurations as a user would write them."""

import re
from collections.abc import Iterable
from textwrap import dedent, indent

import pytest

from scheduler.daemon.settings.loading import parse_settings
from scheduler.daemon.settings.problems import InvalidSettingsError
from scheduler.daemon.settings.resolved import ProfileSettings

#: How lines in words of our own are made.
_OURS = re.compile(r"(\S+: )?found .+, expected .+")
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def with_head(body: str) -> str:
    """Return a complete file: apiVersion, kind, and this text."""
    return HEAD + dedent(body)


def one_profile(body: str) -> str:
    """Return a complete file with a single profile called `p`."""
    return HEAD + "profiles:\n- schedulerName: p\n" + indent(dedent(body).lstrip("\n"), "  ")


def profile_of(body: str) -> ProfileSettings:
    """Return the resolved profile `p`."""
    (profile,) = parse_settings(one_profile(body), "f.yaml").profiles
    return profile


def lines_of(text: str) -> list[str]:
    """Return every problem in `text`, without the file name at the start of each line."""
    with pytest.raises(InvalidSettingsError) as caught:
        parse_settings(text, "f.yaml")
    assert all(line.startswith("f.yaml: ") for line in caught.value.lines)
    return [line.removeprefix("f.yaml: ") for line in caught.value.lines]


def in_upstreams_words(lines: Iterable[str]) -> list[str]:
    """Return the lines whose wording may not change: they stand in the tests, the others in snapshots."""
    return [line for line in lines if not _OURS.fullmatch(line)]
