"""Every expression of the recordings has upstream's value or error; what upstream refuses selects nothing."""

import pytest

from tests.engine.cel.recordings import answer, read_recording


@pytest.mark.parametrize(("name", "n_lines"), [("cel", 400), ("cel_libraries", 887)])
def test_replay(name, n_lines):
    recording = read_recording(name)
    assert len(recording.lines) == n_lines
    for line in recording.lines:
        found = answer(line["expression"], recording.devices)
        if "compile" in line:
            assert "compile" in found or all(isinstance(each, str) for each in found["results"]), line
        else:
            assert found.get("results") == line["results"], line
