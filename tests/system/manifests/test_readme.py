"""README.md is short, and its commands run as written in a copy of the checkout, where nothing is installed yet."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from scheduler.sandbox.demo.command import STORIES
from tests.support.kubectl import Kubectl
from tests.support.manifest_files import ROOT
from tests.support.waiting import TIMEOUT_S, until


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


README = (ROOT / "README.md").read_text()
BLOCKS = blocks(ROOT / "README.md")
#: The first block is what the command in the third one prints.
SHOWN, MADE, PLAYED, *OTHERS = BLOCKS
#: The page about explain shows more of it.
EXPLAINED = blocks(ROOT / "scheduler" / "tools" / "explain" / "README.md")[0]
COMMANDS = [line for block in (MADE, PLAYED, *OTHERS) for line in block.splitlines()]

ACTIVATE = ". .venv/bin/activate"
DEVCLUSTER = "affinity-scheduler devcluster --ui"
SHADOW = "affinity-scheduler shadow --kubeconfig ~/.kube/config --for 10m"
#: Commands that are not run here, by how they begin, and why; another test plays what they do.
LEFT_OUT = {
    "make bench ": "it takes minutes; tests/bench has its flag, and its pods in a smaller cluster",
    "make test ": "it is the suite that this test is of",
    "pipx install ": "tests/release/test_wheel.py installs the wheel into an environment of its own",
    "docker build ": "needs a container engine and a registry; test_image.py runs the stages of the build",
    "helm install ": "needs a cluster that runs containers; tests/system/chart applies what the chart renders",
    "helm uninstall ": "the same; it deletes what the chart rendered",
}
_NAME = re.compile(r"shop-[a-z0-9]+-[a-z0-9]+|node-\d+|zone-[abc]")
_NUMBERS = {8: "eight"}
_TYPED_S = 120.0


def command(line: str) -> str:
    return re.split(r"\s{2,}# ", line)[0]


def is_left_out(line: str) -> bool:
    return any(line.startswith(beginning) for beginning in LEFT_OUT)


def test_the_page_is_read_in_two_minutes() -> None:
    assert len(README.splitlines()) <= 150
    assert len(README.split()) <= 1500


def test_every_command_is_in_a_block_or_left_out_for_a_reason() -> None:
    assert README.count("```") == 2 * len(BLOCKS), "a block with a language"
    inline = re.findall(r"`((?:make|kubectl|helm|pipx|affinity-scheduler) [^`]+)`", README)
    assert [each for each in inline if not is_left_out(each) and not any(map(_begins(each), COMMANDS))] == []
    assert [
        each for each in LEFT_OUT if not any(line.startswith(each) for line in (*COMMANDS, *inline))
    ] == []


def _begins(beginning: str) -> Callable[[str], bool]:
    return lambda line: line.startswith(beginning)


@dataclass
class Checkout:
    """A copy of the checkout, and the environment of a user who has just got it."""

    folder: Path
    home: Path
    environment: dict[str, str]

    def made(self, line: str, n_columns: int) -> str:
        """
        Return what a command that installs shows on a terminal of so many columns, without colours.

        With the real home: Python and pip may be configured there.
        """
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, n_columns, 0, 0))
        environment = {
            name: value for name, value in self.environment.items() if name not in ("COLUMNS", "LINES")
        }
        environment |= {
            "HOME": os.environ["HOME"],
            "TERM": "xterm",
            "PYTHONUTF8": "1",
            "PYTHONIOENCODING": "utf-8",
        }
        with (self.folder.parent / "errors").open("w+b") as errors, subprocess.Popen(
            ["bash", "-c", line], cwd=self.folder, env=environment, stdout=its, stderr=errors
        ) as process:  # fmt: skip
            os.close(its)
            shown = b""
            # A terminal that nobody writes to any more is an error.
            with suppress(OSError):
                while data := os.read(ours, 1 << 16):
                    shown += data
            os.close(ours)
        assert process.returncode == 0, shown[-2000:] + (self.folder.parent / "errors").read_bytes()
        return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode().replace("\r\n", "\n"))

    @contextmanager
    def terminal(self, line: str, log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command that lasts in a terminal of its own; end it as Ctrl-C does, which it has to take well."""
        process = subprocess.Popen(
            ["bash", "-c", f"{ACTIVATE} && exec {line}"],
            cwd=self.folder, env=self.environment, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            yield process
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=TIMEOUT_S) == 0, line
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def type(self, lines: list[str]) -> list[tuple[int, str]]:
        """Type the lines into one shell; return exit code and output of each."""
        script = "\n".join(f"{line}\nprintf '\\n@@ %s\\n' $?" for line in lines)
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=_TYPED_S,
        )  # fmt: skip
        parts = re.split(r"^@@ (\d+)\n", done.stdout, flags=re.MULTILINE)
        assert len(parts) == 2 * len(lines) + 1, done.stdout
        return [(int(code), text) for text, code in zip(parts[::2], parts[1::2], strict=False)]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Copy what a clone has, but for tests, and bytecode beside it, which saves seconds: no environment."""
    folder = tmp_path_factory.mktemp("clone") / "affinity-scheduler"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "build", "dist", "tests"))
    home = folder.parent / "home"
    (home / ".kube").mkdir(parents=True)
    of_this_run = {
        "PYTHONPATH",
        "PYTHONPYCACHEPREFIX",
        "VIRTUAL_ENV",
        "KUBECONFIG",
        "MAKELEVEL",
        "MAKEFLAGS",
        "MFLAGS",
    }
    environment = {name: value for name, value in os.environ.items() if name not in of_this_run}
    # What is not imported is not compiled: half of the time that an installation takes.
    return Checkout(folder, home, {**environment, "HOME": str(home), "PIP_COMPILE": "0"})


@pytest.fixture(scope="module")
def demo(checkout: Checkout) -> str:
    """Return what the first command shows at 80 columns; it installs what all others need."""
    line = MADE.splitlines()[0]
    assert command(line) == "make demo"
    return checkout.made(line, 80)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_has_as_many_stories_as_the_page_says(demo: str) -> None:
    (found,) = re.findall(r"^demo: (\d+) stories, \d+ pods placed, 0 rules broken$", demo, re.MULTILINE)
    assert f"# {_NUMBERS[int(found)]} stories" in MADE.splitlines()[0]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux", reason="terminals end otherwise elsewhere")
def test_the_whole_demo_is_a_tour_of_at_most_250_lines_at_80_columns(demo: str) -> None:
    lines = demo.splitlines()
    assert len(lines) <= 250, demo
    assert max(map(len, lines)) < 80, demo
    assert demo.count("no rule is broken") == 1
    stories = re.split(r"\n── ", demo)[1:-1]
    assert len(stories) == len(STORIES)
    for story in stories:
        assert re.search(r"\[[\w. ]*\]  ?\[|zone-a +100", story), story
    assert "demo --story N" in lines[-3]
    assert "demo --serve" in lines[-2]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("demo")
async def test_every_command_runs_as_written(checkout: Checkout) -> None:
    """After `make demo`, as the page says: a cluster in one terminal, and all other commands in a second one."""
    Kubectl()  # skips the test where there is none
    lines = [line for line in COMMANDS if line != MADE.splitlines()[0]]
    lasting = {DEVCLUSTER, SHADOW}
    typed = [line for line in lines if command(line) not in lasting and not is_left_out(line)]
    assert {command(line) for line in lines} >= lasting
    with (checkout.folder.parent / "devcluster.log").open("w+b") as log, checkout.terminal(DEVCLUSTER, log):
        kubeconfig = checkout.folder / "devcluster.kubeconfig"
        await until(lambda: _says(log, "its page is at http"), what="the address of the page")
        shutil.copyfile(kubeconfig, checkout.home / ".kube" / "config")
        answers = dict(zip(typed, checkout.type(typed), strict=True))
        with (checkout.folder.parent / "shadow.log").open("w+b") as seen, checkout.terminal(SHADOW, seen):
            await until(lambda: _says(seen, "Comparing decisions"), what="the shadow's start")
    # A pod that does not fit is exit code 1.
    failed = {line: answer for line, answer in answers.items() if answer[0] != ("explain" in line)}
    assert failed == {}
    (explained,) = (text for line, (_, text) in answers.items() if " explain " in line)
    for shown in (SHOWN, EXPLAINED):
        _assert_shown(shown, explained)
    (listed,) = (text for line, (_, text) in answers.items() if "field-selector spec.schedulerName" in line)
    assert "Pending" not in listed, "waiting pods go away with the old template"


async def _says(log: IO[bytes], words: str) -> bool:
    return words in Path(log.name).read_text()


def _assert_shown(shown: str, printed: str) -> None:
    """Each shown line is printed, in this order; names differ, and `...` stands for what is left out."""
    rest = iter(_NAME.sub("NAME", line) for line in printed.splitlines())
    for line in _NAME.sub("NAME", shown).splitlines():
        wanted = line.removesuffix(", ...")
        if wanted.strip() != "...":
            assert any(each.startswith(wanted) for each in rest), f"{wanted!r} is not in {printed}"
