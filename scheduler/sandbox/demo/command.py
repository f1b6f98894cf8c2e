"""`affinity-scheduler demo`: play stories about pod affinity on an embedded cluster."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from scheduler.engine.syntax.words import counted
from scheduler.errors import SchedulerError, SettingsError
from scheduler.sandbox.demo.api import connected
from scheduler.sandbox.demo.display import Display
from scheduler.sandbox.demo.pod_watch import PodWatch
from scheduler.sandbox.demo.processes import KUBECONFIG, process_of, served
from scheduler.sandbox.demo.stage import Stage, Story
from scheduler.sandbox.demo.stories import (
    blue_green,
    database,
    enforced,
    gpus,
    hole,
    own_rules,
    rolling_update,
    thousand_pods,
)
from scheduler.sandbox.demo.waiting import StoryFailed, until

STORIES: Final[Sequence[Story]] = (
    blue_green.STORY,
    rolling_update.STORY,
    thousand_pods.STORY,
    database.STORY,
    enforced.STORY,
    hole.STORY,
    gpus.STORY,
    own_rules.STORY,
)
_NODES: Final = 6
_ZONES: Final = 3
_GPUS: Final = 4
_GPUS_PER_FABRIC: Final = 2
#: The versions of Kubernetes that the embedded cluster can be of.
VERSIONS: Final = ("1.34", "1.35", "1.36", "1.37")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make `parser` read this command's arguments."""
    numbers = range(1, len(STORIES) + 1)
    titles = "; ".join(f"{number}: {STORIES[number - 1].title}" for number in numbers)
    parser.add_argument("--story", type=int, choices=numbers, metavar="N", help=f"play only one ({titles})")
    parser.add_argument(
        "--version",
        choices=VERSIONS,
        default="1.36",
        help="the version of Kubernetes that the cluster is of; stories that need a newer one are left out "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="keep the cluster, the last story's pods and a stuck rollout until Ctrl-C",
    )


def run(args: argparse.Namespace) -> int:
    """Play; return 0 only if every story ended as expected and no rule is broken."""
    minor = int(args.version.removeprefix("1."))
    numbers = playable(args.story, minor)
    show = Display(sys.stdout, os.environ)
    logs = Path(tempfile.mkdtemp(prefix="affinity-scheduler-demo-"))
    code = asyncio.run(_play_until_signalled(_Demo(show, logs, numbers, minor, serves=args.serve)))
    if code:
        print(f"logs of the cluster and the scheduler: {logs}", file=sys.stderr)
    else:
        shutil.rmtree(logs, ignore_errors=True)
    return code


def playable(asked: int | None, minor: int) -> list[int]:
    """
    Return the story `asked`, or all that the version of Kubernetes has.

    Raises: SettingsError if it lacks what `asked` shows.
    """
    if asked is not None:
        since = STORIES[asked - 1].since_minor
        if minor < since:
            raise SettingsError("--story", str(asked), f"Kubernetes 1.{minor}", f"--version 1.{since}")
        return [asked]
    for number, story in enumerate(STORIES, 1):
        if minor < story.since_minor:
            print(f"story {number} is left out: it needs Kubernetes 1.{story.since_minor}", file=sys.stderr)
    return [number for number, story in enumerate(STORIES, 1) if minor >= story.since_minor]


async def _play_until_signalled(demo: _Demo) -> int:
    """Play the demo; SIGINT and SIGTERM end it early, and its processes with it."""
    task = asyncio.ensure_future(demo.play())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        demo.show.line()
        return 0 if demo.is_played else 130


@dataclass(slots=True)
class _Demo:
    """One run: the cluster, the scheduler, and the stories in order."""

    show: Display
    logs: Path
    numbers: list[int]
    #: The minor version of Kubernetes.
    minor: int
    serves: bool
    #: Whether all stories are played and the cluster is only kept running.
    is_played: bool = False

    async def play(self) -> int:
        """Play, and return the exit code."""
        try:
            async with self._cluster() as stage:
                return await self._stories(stage)
        except* (SchedulerError, aiohttp.ClientError) as failures:
            for failure in _leaves(failures):
                self.show.bad(str(failure))
        except* BrokenPipeError:
            # The reader has left (`demo | head`); discard the rest of the output, also what Python flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        self.show.line("demo: failed")
        return 1

    async def _stories(self, stage: Stage) -> int:
        for number in self.numbers:
            story = STORIES[number - 1]
            self.show.title(f"{number} of {len(STORIES)}: {story.title}", story.problem)
            await self._play(story.play, stage)
            await stage.check()
            if number != self.numbers[-1]:
                await stage.clear()
        if self.serves:
            self.show.title(
                "To look at", "The rollout of story 1 again, left stuck: its page says what blocks it."
            )
            stage.namespaces = []
            await self._play(blue_green.leave_stuck, stage)
        self._close(stage)
        if self.serves:
            self.is_played = not stage.broken
            await asyncio.Event().wait()
        return 1 if stage.broken else 0

    def _close(self, stage: Stage) -> None:
        """Say what was checked, and where to go on."""
        show = self.show
        show.title(
            "The end",
            "After each story the rules of all pods were checked, by code that shares nothing with the scheduler.",
        )
        if not stage.broken:
            show.good("no rule is broken")
        if self.serves:
            show.step("the cluster keeps running; look around, then press Ctrl-C:")
            show.step(f"{stage.scheduler_url}/ui/ is the scheduler's page")
            show.step(f"KUBECONFIG={self.logs / KUBECONFIG} kubectl get pods -A -o wide")
        else:
            program = sys.argv[0] if Path(sys.argv[0]).suffix != ".py" else "python -m scheduler"
            show.step(f"{program} demo --story N   plays one story, 1 to {len(STORIES)}")
            show.step(f"{program} demo --serve     keeps the cluster to look at")
        played = counted(len(self.numbers), "story", "stories")
        placed, broken = counted(stage.watch.n_placed(), "pod"), counted(len(stage.broken), "rule")
        show.line(f"demo: {played}, {placed} placed, {broken} broken")

    async def _play(self, play: Callable[[Stage], Awaitable[None]], stage: Stage) -> None:
        try:
            await play(stage)
        except* StoryFailed:
            self.show.quote(await stage.warnings())
            raise

    @contextlib.asynccontextmanager
    async def _cluster(self) -> AsyncGenerator[Stage, None]:
        """Run a cluster and a scheduler, and wait until they are ready; if either dies, so does the block."""
        kubeconfig = self.logs / KUBECONFIG
        arguments = ["devcluster", "--kubeconfig", str(kubeconfig), "--version", f"1.{self.minor}"]
        arguments += ["--nodes", str(_NODES), "--zones", str(_ZONES)]
        arguments += ["--gpus", str(_GPUS), "--gpu-fabric", str(_GPUS_PER_FABRIC)]
        self.show.line(f"starting a cluster of {_NODES} nodes in {_ZONES} zones, and the scheduler ...")
        self.show.line("In the maps [ ] is a node, and a letter a pod on it.")
        async with process_of("devcluster", arguments, self.logs):
            # The cluster writes it once it listens. The file exists before it has its text.
            await until(
                lambda: kubeconfig.exists() and kubeconfig.stat().st_size > 0,
                lambda: "devcluster is not ready",
            )
            scheduler = served("scheduler", ["run", *own_rules.flags()], self.logs)
            async with connected(kubeconfig) as api, scheduler as url, asyncio.TaskGroup() as tasks:
                watch = PodWatch(api)
                watching = tasks.create_task(watch.run(), name="pods")
                yield Stage(api, watch, self.show, self.logs, url)
                watching.cancel()


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """Yield the exceptions in a group of groups."""
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(one)
        else:
            yield one
