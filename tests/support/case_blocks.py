"""Tables of cases as text, so that files and messages stand in them as a user sees them."""

from __future__ import annotations

import re

import pytest


def case_blocks(text: str) -> list[pytest.ParameterSet]:
    """
    Return a parameter set (input, expected lines) for each block of the text.

    A block is `# name`, the lines of the input, and a line that begins with `=> ` for each line that is expected. Lines
    that begin with three blanks continue the expected line above them.
    """
    sets = []
    for block in re.split(r"^# ", text, flags=re.MULTILINE)[1:]:
        name, *lines = block.rstrip("\n").split("\n")
        n_input = next((n for n, line in enumerate(lines) if line.startswith("=> ")), len(lines))
        told = "\n".join(lines[n_input:]).replace("\n   ", " ").split("\n=> ")
        expected = [line.removeprefix("=> ") for line in told if line]
        sets.append(pytest.param("\n".join(lines[:n_input]), expected, id=name))
    return sets
