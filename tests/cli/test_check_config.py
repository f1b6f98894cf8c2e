"""The command `check-config`."""

import argparse
import io
import sys
from types import SimpleNamespace

from scheduler.cli import check_config
from scheduler.settings.loading import parse_settings
from tests.settings.configurations import HEAD


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


def test_every_problem_of_a_bad_file_is_printed(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + "parallelism: 0\npercentageOfNodesToScore: x")
    assert run(str(path)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"{path}: parallelism: Invalid value: 0: should be an integer value greater than zero",
        f'{path}: percentageOfNodesToScore: found "x", expected an integer',
    ]


def test_a_dash_reads_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"foo")))
    assert run("-") == 2
    assert capsys.readouterr().err == 'standard input: found "foo", expected a KubeSchedulerConfiguration\n'


def test_a_bad_feature_gate_is_printed(capsys):
    assert run("--feature-gates", "MatchLabelKeysInPodAffinity=2", "-") == 2
    assert capsys.readouterr().err == (
        '--feature-gates: "MatchLabelKeysInPodAffinity": found "2", expected true or false\n'
    )
