"""The files for a Prometheus without its operator: the same alerts, and a configuration that finds them."""

import shutil
import subprocess

import pytest
import yaml

from tests.system.monitoring.plain_rules import FILE, plain_rules
from tests.system.monitoring.queries import ALERTS


def test_the_rules_file_has_the_alerts_of_the_operator_s_object() -> None:
    assert FILE.read_text() == plain_rules(), "run python -m tests.system.monitoring.plain_rules"


def test_the_configuration_scrapes_the_job_that_the_alerts_select() -> None:
    configuration = yaml.safe_load((FILE.parent / "prometheus.yml").read_text())
    assert configuration["rule_files"] == [FILE.name]
    assert [job["job_name"] for job in configuration["scrape_configs"]] == ["affinity-scheduler"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
def test_promtool_accepts_both() -> None:
    command = ["promtool", "check", "config", "prometheus.yml"]
    done = subprocess.run(command, cwd=FILE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(ALERTS)} rules found" in done.stdout
