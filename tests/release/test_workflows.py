"""The workflows pin what they run, install by hash, and do what MAINTAINERS.md describes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.release.checkout import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(path: Path) -> list[dict[str, str]]:
    return [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]


def zizmor(*paths: Path) -> str:
    options = ["--offline", "--quiet", "--color=never", "--format=plain"]
    command = [str(Path(sys.executable).with_name("zizmor")), *options]
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=False)
    return done.stdout


def test_zizmor_finds_nothing():
    """No action by its tag, no right too many, no text of an event in a command, no token that stays on disk."""
    assert zizmor(*WORKFLOWS).startswith("No findings to report.")


def test_zizmor_finds_an_action_by_its_tag(tmp_path):
    changed = tmp_path / "ci.yml"
    changed.write_text(re.sub("@[0-9a-f]{40} # v", "@v", WORKFLOWS[0].read_text(), count=1))
    assert "[unpinned-uses]" in zizmor(changed)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_end_name_versions_and_install_nothing_but_by_the_makefile(path):
    actions = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert all(re.search(r" # v\d+\.\d+\.\d+$", line) for line in actions)
    assert all("timeout-minutes" in job for job in yaml.safe_load(path.read_text())["jobs"].values())
    commands = "\n".join(step.get("run", "") for step in steps(path))
    assert "pip install" not in commands
    menu = (ROOT / "Makefile").read_text()
    targets = {word for line in re.findall(r"\bmake ([a-z -]+)", commands) for word in line.split()}
    assert targets
    assert all(f"\n{target}:" in menu for target in targets)


@pytest.mark.parametrize("name", ["ci.yml", "nightly.yml"])
def test_what_runs_tests_has_a_prometheus_and_fails_without_one(name):
    """Tests of alerts and runbooks are skipped where there is none."""
    commands = [step.get("run", "") for step in steps(ROOT / ".github" / "workflows" / name)]
    installed, checked, tested = commands[2:5]
    assert installed.endswith("apt-get install -y -qq --no-install-recommends prometheus")
    assert checked == "command -v prometheus promtool kubectl"
    assert tested in ('make "$INSTALL" && make test', "make locked nightly")


@pytest.mark.parametrize("target", [".venv-locked", "locked"])
def test_the_makefile_installs_the_lock_of_ci_by_hash(target):
    menu = (ROOT / "Makefile").read_text()
    start = menu.index("\n$(LOCKED)/.installed:" if target == ".venv-locked" else "\nlocked:")
    recipe = menu[start + 1 :].split("\n\n")[0]
    assert "--require-hashes -r" in recipe
    assert "config/locks/ci.txt" in recipe


def test_what_the_maintainers_page_does_by_hand_the_workflow_does():
    page = (ROOT / "MAINTAINERS.md").read_text()
    released = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    for command in (
        "make image-check",
        "make audit STRICT=1",
        "make release",
        "cosign sign ",
        "cosign sign-blob",
        "helm push",
        "gh release create",
    ):
        assert command in page, command
        assert command in released, command
    for option in ("--platform linux/amd64,linux/arm64", "--provenance mode=max", "--sbom true"):
        assert option in page, option
        assert option in released, option
