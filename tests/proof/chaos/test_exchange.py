"""
The exchange of releases, with this checkout in both places; `make chaos ARGS=--exchange` plays it with 0.1.0.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import ceil, floor
from pathlib import Path

import pytest
import yaml

from tests.proof.chaos.exchange import N_REPLICAS, exchange
from tests.proof.chaos.release import CHECKOUT
from tests.proof.chaos.verdicts import Verdict

pytestmark = pytest.mark.slow


def test_replicas_that_are_killed_while_they_are_rolled_lose_and_double_nothing(tmp_path: Path) -> None:
    outcome = asyncio.run(exchange(3, replace(CHECKOUT, name="other"), CHECKOUT, tmp_path, is_killed=True))
    assert not outcome.wrongs, outcome.story()
    assert outcome.n_binds_by.keys() == {"new", "other"}
    assert any("SIGKILL" in text for _, text in outcome.told)
    assert outcome.n_with_claims > 0


def test_an_older_release_that_does_more_than_it_knows_is_noticed(tmp_path: Path) -> None:
    """It is said to place no pods with claims, and does; all else is right, and its replicas end by SIGTERM."""
    older = replace(CHECKOUT, name="older", knows_all=False)
    outcome = asyncio.run(exchange(4, older, CHECKOUT, tmp_path, is_killed=False))
    assert {wrong.verdict for wrong in outcome.wrongs} == {Verdict.STRANGE}, outcome.story()


def test_replicas_are_rolled_as_those_of_the_manifests() -> None:
    """The strategy is the default, 25 % of two: one more replica is started, and none goes before that is ready."""
    manifest = yaml.safe_load(
        (Path(__file__).parents[3] / "manifests" / "base" / "deployment.yaml").read_text()
    )
    chart = yaml.safe_load((Path(__file__).parents[3] / "manifests" / "chart" / "values.yaml").read_text())
    spec = manifest["spec"]
    replicas = spec.get("replicas", 1)
    assert replicas == chart["scheduler"]["replicas"] == N_REPLICAS
    assert "strategy" not in spec
    assert (ceil(replicas / 4), floor(replicas / 4)) == (1, 0)
    assert spec["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/readyz"
