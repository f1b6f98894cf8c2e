"""Every expression of the recordings has upstream's value, or upstream's error to the letter."""

import pytest

from scheduler.engine.cel import Selector, compile_selector
from scheduler.engine.cel.plans import Frame
from tests.engine.cel.recordings import answer, read_recording


@pytest.mark.parametrize(("name", "n_lines"), [("cel", 400), ("cel_libraries", 887)])
def test_replay(name, n_lines):
    recording = read_recording(name)
    expected = [
        {key: line[key] for key in line if key not in ("tooCostly", "costs")} for line in recording.lines
    ]
    assert len(expected) == n_lines
    assert [answer(line["expression"], recording.devices) for line in expected] == expected


def test_costs_are_upstreams():
    recording = read_recording("cel_libraries")
    lines = [line for line in recording.lines if "costs" in line]
    assert len(lines) > 300
    assert [costs(line["expression"], recording.devices) for line in lines] == [
        line["costs"] for line in lines
    ]


def costs(expression, devices):
    selector = compile_selector(expression)
    assert isinstance(selector, Selector)
    frames = [Frame(device.variable, selector._n_slots) for device in devices]
    for frame in frames:
        selector._run(frame)
    return [frame.cost for frame in frames]
