"""The groups that are given to two schedulers: all have places, and the core finds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.stimuli import NodeSeen, PodSeen
from tests.bench.group_cases import CLASSES, Case, cases
from tests.bench.groups_beside import main
from tests.support.driving import NAME, Driver


def _n_placed(case: Case) -> int:
    driver = Driver()
    for node in case.nodes:
        driver.handle(NodeSeen(decode_node(json.dumps(node).encode())))
    group = {GROUP: "g", MIN_COUNT: str(len(case.members))}
    for member in case.members:
        metadata = {**member["metadata"], "labels": {**member["metadata"]["labels"], **group}}
        spec = {**member["spec"], "schedulerName": NAME}
        driver.handle(PodSeen(driver.decoded({**member, "metadata": metadata, "spec": spec})))
    return sum(isinstance(one, Bind) for one in driver.cycle())


def test_every_group_is_placed_as_a_whole_by_one_cycle() -> None:
    drawn = list(cases(6, seed=1))
    assert [sum(case.of_class == one for case in drawn) for one in CLASSES] == [2, 2, 2]
    assert [_n_placed(case) for case in drawn] == [len(case.members) for case in drawn]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--groups", "0"], "--groups: found 0, expected a number from 1 up\n"),
        (["--scheduler-binary", "nowhere"], "--scheduler-binary: found nowhere, expected a file\n"),
        ([], "KUBEBUILDER_ASSETS: found no folder with both, expected etcd and kube-apiserver\n"),
    ],
)
def test_bad_input_is_one_line(
    flags: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert main(flags) == 2
    assert capsys.readouterr().err == problem
