"""The workflows pin what they run, install by hash, and do what MAINTAINERS.md describes."""

import re
from pathlib import Path

import pytest
import yaml

from tests.release.checkout import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(path: Path) -> list[dict[str, str]]:
    return [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_name_their_version(path):
    lines = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_have_no_more_rights_than_they_say_and_end(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_commands_install_nothing_but_by_the_makefile_and_take_no_text_of_an_event(path):
    commands = "\n".join(step.get("run", "") for step in steps(path))
    assert "pip install" not in commands
    assert "${{" not in commands
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
