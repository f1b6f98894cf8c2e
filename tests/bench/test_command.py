"""Bad flags are one line and exit code 2, before anything is measured."""

import pytest

from tests.bench.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(["--nodes", "0"], "--nodes: found 0, expected a number from 1 up", id="no node"),
        pytest.param(
            ["--pods", "-3"], "--pods: found -3, expected a number from 1 up", id="fewer than no pods"
        ),
        pytest.param(["--rounds", "0"], "--rounds: found 0, expected a number from 1 up", id="no round"),
        pytest.param(["--placed", "0"], "--placed: found 0, expected a number from 1 up", id="no placed pod"),
        pytest.param(
            ["--placed", "200000"],
            "--pods: placed: found 500 on 5000 nodes, expected more nodes or fewer running pods",
            id="more placed pods than nodes hold",
        ),
        pytest.param(["--nodes", "many"], "argument --nodes: invalid int value: 'many'", id="no number"),
        pytest.param(
            ["--shape", "round"], "--shape: found round, expected one of basic, anti-", id="no shape"
        ),
        pytest.param(
            ["--scheduler-binary", "nowhere"],
            "--scheduler-binary: found nowhere, expected a file",
            id="no binary",
        ),
        pytest.param(
            ["--holds", "earthquake"],
            "--holds: found earthquake, expected one of preemption-repelled, ",
            id="no situation",
        ),
        pytest.param(["--level", "cellar"], "argument --level: invalid choice: 'cellar'", id="no level"),
        pytest.param(
            ["--shape", "anti-affinity", "--nodes", "10", "--pods", "9"],
            "--pods: anti-affinity: found 9 on 10 nodes, expected 1 to 8 pods",
            id="more pods than can be placed",
        ),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_2(capsys, arguments, line):
    assert _exit_code(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(line)
    assert output.err.count("\n") == 1


def _exit_code(arguments: list[str]) -> object:
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code
