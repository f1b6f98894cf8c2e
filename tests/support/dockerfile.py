"""Parses a Dockerfile into stages and instructions, as far as ours needs it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

_CONTINUED = re.compile(r"\\\n\s*")
_FROM = re.compile(r"FROM (?P<base>\S+) AS (?P<name>\S+)")


@dataclass(frozen=True, slots=True)
class Instruction:
    """`keyword` in capitals, `text` the rest of the line; continued lines are one."""

    keyword: str
    text: str

    @property
    def words(self) -> list[str]:
        """Return the words of the text, whether it is a JSON array or not."""
        words: list[str] = json.loads(self.text) if self.text.startswith("[") else self.text.split()
        return words


@dataclass(frozen=True, slots=True)
class Stage:
    """`base` is an image, or the name of an earlier stage."""

    name: str
    base: str
    own: tuple[Instruction, ...]


class Dockerfile:
    """The stages of a file, in order."""

    def __init__(self, path: Path) -> None:
        lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
        text = _CONTINUED.sub(" ", "\n".join(lines))
        instructions = [Instruction(*line.split(None, 1)) for line in text.splitlines() if line.strip()]
        starts = [n for n, each in enumerate(instructions) if each.keyword == "FROM"]
        #: Instructions before the first stage.
        self.globals = instructions[: starts[0]]
        ends = [*starts[1:], len(instructions)]
        self.stages = {
            stage.name: stage
            for stage in (_stage(instructions[start:end]) for start, end in zip(starts, ends, strict=True))
        }

    def lineage(self, name: str) -> list[Instruction]:
        """Return the instructions of the stage and its bases, the bases' first."""
        stage = self.stages[name]
        inherited = self.lineage(stage.base) if stage.base in self.stages else []
        return [*inherited, *stage.own]

    def last(self, stage: str, keyword: str) -> Instruction:
        """Return the last instruction with this keyword in the stage or its bases."""
        return [each for each in self.lineage(stage) if each.keyword == keyword][-1]


def _stage(instructions: list[Instruction]) -> Stage:
    found = _FROM.fullmatch(f"FROM {instructions[0].text}")
    assert found is not None, f"a stage without a name: {instructions[0].text}"
    return Stage(found["name"], found["base"], tuple(instructions[1:]))
