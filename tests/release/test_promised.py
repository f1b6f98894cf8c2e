"""Flags, metrics with their labels, fields of the configuration and values of the chart are those of 1.0.0, or more."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cli import main
from tests.release.checkout import ROOT
from tests.support.surface import families, flags

#: Written by hand from 1.0.0, and not changed before 2.0.0.
PROMISED = json.loads((ROOT / "tests" / "data" / "promised-1.0.0.json").read_text())
#: What CHANGELOG.md names under Removed.
ENDED: dict[str, set[str]] = {
    "metrics": {"affinity_scheduler_plugin_shut_off"},
    "fields": {"profiles[].pluginConfig[].args.preferFewerVictims"},
}


def _paths(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, f"{at}.{key}" if at else key)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, f"{at}[]")
    else:
        yield at


def test_every_flag_is_still_there():
    found = flags()
    ended = {
        f"{name} {flag}" for name, was in PROMISED["flags"].items() for flag in was if flag not in found[name]
    }
    assert ended == ENDED.get("flags", set())


def test_every_metric_is_still_there_with_its_type_and_labels():
    found = families()
    changed = {
        name
        for name, was in PROMISED["metrics"].items()
        if name not in found or {"type": found[name].type, "labels": [*found[name].labels]} != was
    }
    assert changed == ENDED.get("metrics", set())


def test_every_field_of_the_default_configuration_is_still_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = tmp_path / "scheduler.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    assert main.main(["check-config", str(config)]) == 0
    assert set(PROMISED["fields"]) - set(_paths(yaml.safe_load(capsys.readouterr().out))) == ENDED.get(
        "fields", set()
    )


def test_every_value_of_the_chart_is_still_there():
    values = yaml.safe_load((ROOT / "manifests" / "chart" / "values.yaml").read_text())
    assert set(PROMISED["values"]) - set(_paths(values)) == ENDED.get("values", set())
