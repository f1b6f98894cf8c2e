"""The command `check-config`."""

import argparse
import io
import sys
from types import SimpleNamespace

from scheduler.cli import check_config
from scheduler.daemon.settings.loading import parse_settings
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


def test_every_problem_of_a_bad_file_is_printed(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + "parallelism: 0\npercentageOfNodesToScore: x")
    assert run(str(path)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f'{path}: percentageOfNodesToScore: found "x", expected an integer',
        f"{path}: parallelism: Invalid value: 0: should be an integer value greater than zero",
    ]


def test_a_dash_reads_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"foo")))
    assert run("-") == 2
    assert capsys.readouterr().err == 'standard input: found "foo", expected a KubeSchedulerConfiguration\n'


def test_a_bad_feature_gate_is_printed(capsys):
    assert run("--feature-gates", "PodLevelResources=2", "-") == 2
    assert capsys.readouterr().err == (
        '--feature-gates: invalid value of PodLevelResources=2, err: strconv.ParseBool: parsing "2": invalid syntax\n'
    )


def test_the_emulated_version_is_printed_with_its_gates(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(HEAD)
    for arguments, version, shown in (((), "1.36", "true"), (("--emulated-version=1.34",), "1.34", "false")):
        assert run(*arguments, str(path)) == 0
        version_line, gates = [line for line in capsys.readouterr().out.splitlines() if line[0] == "#"][-2:]
        assert version_line == f"# emulatedVersion: {version}"
        assert f"NominatedNodeNameForExpectation={shown}" in gates


def test_a_gate_that_cannot_be_switched_is_printed(tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(HEAD)
    gates = "MatchLabelKeysInPodTopologySpread=false"
    assert run("--feature-gates", gates, str(path)) == 2
    assert capsys.readouterr().err == (
        "--feature-gates: MatchLabelKeysInPodTopologySpreadSelectorMerge is enabled, but depends on features that are "
        "disabled: [MatchLabelKeysInPodTopologySpread]\n"
    )
