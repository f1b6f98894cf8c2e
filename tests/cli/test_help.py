"""What `--help` says of each command, and what it leaves out."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from scheduler.cli import kube_scheduler_flags
from scheduler.cli.main import _COMMANDS, _parse, main

COMMANDS = list(_COMMANDS)


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_is_what_a_command_line_without_arguments_asks_for(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys)
    assert text == help_of(capsys, "--help")
    assert "\nexamples:\n" in text
    assert all(re.search(rf"^    {name}(?: |$)", text, re.MULTILINE) for name in COMMANDS)


def test_kubectl_finds_the_plugin() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["kubectl-affinity"] == "scheduler.cli.main:main"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_examples_that_its_parser_takes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line each, which fits into a terminal."""
    text = help_of(capsys, name, "--help")
    examples = text.partition("\nexamples:\n")[2].splitlines()
    assert examples
    for line in examples:
        assert len(line) <= 80
        program, *words = shlex.split(line)
        assert (program, words[0]) == ("affinity-scheduler", name)
        _, args = _parse(words)
        assert args.command == name


def test_flags_that_do_nothing_for_a_command_are_no_part_of_its_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those of kube-scheduler without effect; TLS where no port is served unless one is named."""
    text = help_of(capsys, "run", "--help")
    assert "--tls-cert-file" in text
    assert [name for name in kube_scheduler_flags._WITHOUT_EFFECT if f"--{name} " in text] == []
    text = help_of(capsys, "shadow", "--help")
    assert "--port" in text
    assert re.findall(r"--(?:tls|auth|insecure)\S*", text) == []
