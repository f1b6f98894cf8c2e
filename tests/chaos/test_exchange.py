"""
The exchange of releases, with this checkout in both places; `make chaos ARGS=--exchange` plays it with 0.1.0.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.exchange import exchange
from tests.chaos.release import CHECKOUT
from tests.chaos.verdicts import Verdict

pytestmark = pytest.mark.slow


def test_a_rolling_update_loses_and_doubles_nothing(tmp_path: Path) -> None:
    outcome = asyncio.run(exchange(3, replace(CHECKOUT, name="other"), CHECKOUT, tmp_path))
    assert not outcome.wrongs, outcome.story()
    assert outcome.n_binds_by.keys() == {"new", "other"}
    assert outcome.n_with_claims > 0


def test_an_older_release_that_does_more_than_it_knows_is_noticed(tmp_path: Path) -> None:
    """It is said to place no pods with claims, and to evict nobody; it does."""
    older = replace(CHECKOUT, name="older", knows_all=False)
    outcome = asyncio.run(exchange(4, older, CHECKOUT, tmp_path))
    assert {wrong.verdict for wrong in outcome.wrongs} == {Verdict.STRANGE}, outcome.story()
