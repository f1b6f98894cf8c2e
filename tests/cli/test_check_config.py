"""The command `check-config`."""

import argparse
import io
import sys
from types import SimpleNamespace

import pytest

from scheduler.cli import check_config
from scheduler.daemon.settings.loading import parse_settings
from scheduler.errors import SettingsError
from tests.daemon.settings.configurations import HEAD


def run(*arguments):
    parser = argparse.ArgumentParser()
    check_config.add_arguments(parser)
    return check_config.run(parser.parse_args(arguments))


def test_a_good_file_is_printed_complete(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + "parallelism: 3")
    assert run(str(path)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert parse_settings(out, "out") == parse_settings(path.read_text(), "f")


@pytest.mark.parametrize(
    ("more", "flags"),
    [
        ("parallelism: 0\npercentageOfNodesToScore: x", ()),
        ("", ("--feature-gates", "PodLevelResources=2")),
        ("", ("--feature-gates", "MatchLabelKeysInPodTopologySpread=false")),
    ],
)
def test_every_problem_is_printed(more, flags, tmp_path, capsys, snapshot):
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + more)
    assert run(*flags, str(path)) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 2 if more else 1)
    assert err.replace(str(path), "FILE") == snapshot


def test_no_name_is_no_file_of_defaults():
    with pytest.raises(SettingsError, match=r"^FILE: found '', expected the name of a file$"):
        run("")


def test_a_dash_reads_standard_input(monkeypatch, capsys, snapshot):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"foo")))
    assert run("-") == 2
    assert capsys.readouterr().err == snapshot


def test_the_emulated_version_is_printed_with_its_gates(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(HEAD)
    for arguments, version, shown in (((), "1.36", "true"), (("--emulated-version=1.34",), "1.34", "false")):
        assert run(*arguments, str(path)) == 0
        version_line, gates = [line for line in capsys.readouterr().out.splitlines() if line[0] == "#"][-2:]
        assert version_line == f"# emulatedVersion: {version}"
        assert f"NominatedNodeNameForExpectation={shown}" in gates
