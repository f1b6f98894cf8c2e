"""Every expression of the recordings has upstream's value, or upstream's error to the letter."""

import pytest

from tests.cel.recordings import answer, read_recording


@pytest.mark.parametrize(("name", "n_lines"), [("cel", 400), ("cel_libraries", 817)])
def test_replay(name, n_lines):
    recording = read_recording(name)
    expected = [{key: line[key] for key in line if key != "tooCostly"} for line in recording.lines]
    assert len(expected) == n_lines
    assert [answer(line["expression"], recording.devices) for line in expected] == expected
