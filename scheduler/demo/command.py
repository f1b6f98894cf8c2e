"""`affinity-scheduler demo`: play stories about pod affinity on an embedded cluster."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler.demo.api import ApiSession
from scheduler.demo.display import Display
from scheduler.demo.examples import folder
from scheduler.demo.pod_watch import PodWatch, StoryFailed
from scheduler.demo.processes import KUBECONFIG, free_port, is_answered, process_of, server_address
from scheduler.demo.stage import Stage, Story
from scheduler.demo.stories import (
    backport,
    blue_green,
    customers,
    database,
    drain,
    enforced,
    fallback,
    gpus,
    groups,
    hole,
    own_rules,
    priorities,
    racks,
    rolling_update,
    shadow,
    tenants,
    thousand_pods,
)
from scheduler.demo.webhook_process import webhook
from scheduler.errors import SchedulerError, SettingsError
from scheduler.syntax.plurals import counted

STORIES: Final[Sequence[Story]] = (
    blue_green.STORY,
    rolling_update.STORY,
    tenants.STORY,
    customers.STORY,
    thousand_pods.STORY,
    enforced.STORY,
    racks.STORY,
    backport.STORY,
    database.STORY,
    own_rules.STORY,
    fallback.STORY,
    groups.STORY,
    drain.STORY,
    shadow.STORY,
    priorities.STORY,
    gpus.STORY,
    hole.STORY,
)
_NODES: Final = 6
_ZONES: Final = 3
_GPUS: Final = 4
_GPUS_PER_FABRIC: Final = 2
#: The versions of Kubernetes that the embedded cluster can be of.
VERSIONS: Final = ("1.33", "1.34", "1.35", "1.36", "1.37")
#: The first minor version that has the device classes and slices of the cluster's GPUs.
_GPUS_SINCE_MINOR: Final = 34


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
    Return the story `asked`, or all whose package is installed and which the version of Kubernetes has.

    Raises: SettingsError if that does not hold for `asked`.
    """
    lacking = {
        number: lack
        for number, story in enumerate(STORIES, 1)
        if (lack := _lack_of(story, minor)) is not None
    }
    if asked in lacking:
        _, found, expected = lacking[asked]
        raise SettingsError("--story", str(asked), found, expected)
    if asked is not None:
        return [asked]
    for number, (need, _, _) in lacking.items():
        print(f"story {number} is left out: it needs {need}", file=sys.stderr)
    return [number for number in range(1, len(STORIES) + 1) if number not in lacking]


def _lack_of(story: Story, minor: int) -> tuple[str, str, str] | None:
    """Return what the story needs, what there is instead, and what would help; None if it can be played."""
    if minor < story.since_minor:
        needed = f"1.{story.since_minor}"
        return f"Kubernetes {needed}", f"Kubernetes 1.{minor}", f"--version {needed}"
    if story.needs and importlib.util.find_spec(story.needs) is None:
        needed = f"the package {story.needs}"
        return needed, f"no package {story.needs}", "pip install 'affinity-scheduler[webhook]'"
    return None


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
        began_s = time.monotonic()
        try:
            async with self._cluster() as (api, watch, port):
                return await self._stories(api, watch, port, began_s)
        except* SchedulerError as failures:
            for failure in _flattened(failures):
                self.show.bad(str(failure))
        except* BrokenPipeError:
            # The reader has left (`demo | head`); discard the rest of the output, also what Python flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        self.show.line("demo: failed")
        return 1

    async def _stories(self, api: ApiSession, watch: PodWatch, port: int, began_s: float) -> int:
        n_broken = 0

        async def metrics() -> str:
            return await api.text(f"http://127.0.0.1:{port}/metrics")

        def new_stage() -> Stage:
            return Stage(
                api,
                watch,
                self.show,
                metrics,
                lambda *flags: self._enforcer(api, flags),
                lambda: webhook(api, self.logs),
                self._told,
                self._recorded,
            )

        for number in self.numbers:
            story, stage = STORIES[number - 1], new_stage()
            self.show.title(f"Story {number}: {story.title}", story.about)
            await self._play(story, stage)
            n_broken += len(stage.broken)
            if number != self.numbers[-1]:
                await stage.clear()
        if self.serves:
            self.show.title(
                "To look at", "The rollout of story 1 again, left stuck: its page says what blocks it."
            )
            await self._play(Story("", "", blue_green.leave_stuck), new_stage())
        self.show.line(
            f"  played {len(self.numbers)} of {len(STORIES)} stories in {time.monotonic() - began_s:.0f} s"
        )
        if self.serves:
            self.is_played = n_broken == 0
            self.show.line("  the cluster keeps running; look around, then press Ctrl-C:")
            self.show.line(f"  http://127.0.0.1:{port}/ui/ is the scheduler's page")
            self.show.line(f"  KUBECONFIG={self.logs / KUBECONFIG} kubectl get pods -A -o wide")
        self.show.line(summary(len(self.numbers), watch.n_placed(), n_broken))
        if self.serves:
            await asyncio.Event().wait()
        return 1 if n_broken else 0

    @contextlib.asynccontextmanager
    async def _enforcer(self, api: ApiSession, flags: Sequence[str]) -> AsyncGenerator[None, None]:
        """Run an enforcer and wait until it is ready; if it dies, so does the block."""
        port = free_port()
        arguments = ["enforce", "--kubeconfig", str(self.logs / KUBECONFIG), "--port", str(port), *flags]
        async with process_of("enforcer", arguments, self.logs) as enforcer:
            await enforcer.ready(lambda: is_answered(lambda: api.text(f"http://127.0.0.1:{port}/readyz")))
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(enforcer.run(), name="enforcer")
                yield
                watching.cancel()

    async def _told(self, arguments: Sequence[str]) -> list[str]:
        """Return what the command says; it ends with 1 for a negative answer."""
        on = [] if "--recording" in arguments else ["--kubeconfig", str(self.logs / KUBECONFIG)]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scheduler", *arguments, *on), stdout=asyncio.subprocess.PIPE
        )
        told, _ = await process.communicate()
        return told.decode().splitlines()

    @contextlib.asynccontextmanager
    async def _recorded(self) -> AsyncGenerator[str, None]:
        """Record the cluster, with what the example plugins read, and yield the file."""
        file = self.logs / "day.jsonl.gz"
        arguments = ["record", "-o", str(file), "--kubeconfig", str(self.logs / KUBECONFIG), *_own_rules()]

        async def is_recording() -> bool:
            return "Recording changes" in (self.logs / "recorder.log").read_text()

        async with process_of("recorder", arguments, self.logs) as recorder:
            await recorder.ready(is_recording)
            yield str(file)
            await asyncio.shield(recorder.stop())

    async def _play(self, story: Story, stage: Stage) -> None:
        try:
            await story.play(stage)
        except* StoryFailed:
            for warning in await stage.warnings():
                self.show.quote(warning)
            raise

    @contextlib.asynccontextmanager
    async def _cluster(self) -> AsyncGenerator[tuple[ApiSession, PodWatch, int], None]:
        """Run a cluster and a scheduler, and wait until they are ready; if either dies, so does the block."""
        kubeconfig = str(self.logs / KUBECONFIG)
        size = ["--nodes", str(_NODES), "--zones", str(_ZONES)]
        of_version = ["--version", f"1.{self.minor}"]
        if self.minor >= _GPUS_SINCE_MINOR:
            of_version += ["--gpus", str(_GPUS), "--gpu-fabric", str(_GPUS_PER_FABRIC)]
        port = free_port()
        self.show.line(f"starting a cluster of {_NODES} nodes in {_ZONES} zones, and the scheduler ...")
        async with contextlib.AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(
                process_of(
                    "devcluster", ["devcluster", *size, *of_version, "--kubeconfig", kubeconfig], self.logs
                )
            )
            api = await stack.enter_async_context(ApiSession(await server_address(self.logs, cluster)))
            scheduler = await stack.enter_async_context(
                process_of(
                    "scheduler",
                    ["run", "--kubeconfig", kubeconfig, "--port", str(port), *_own_rules()],
                    self.logs,
                )
            )
            await scheduler.ready(lambda: is_answered(lambda: api.text(f"http://127.0.0.1:{port}/readyz")))
            watch = PodWatch(api)
            async with asyncio.TaskGroup() as tasks:
                watching = [
                    tasks.create_task(cluster.run(), name="devcluster"),
                    tasks.create_task(scheduler.run(), name="scheduler"),
                    tasks.create_task(watch.run(), name="pods"),
                ]
                yield api, watch, port
                for task in watching:
                    task.cancel()


def _own_rules() -> list[str]:
    """Return the flags that add the profile with the plugins among the examples."""
    plugins = folder() / "plugins"
    return ["--plugins", str(plugins), "--config", str(plugins / "configuration.yaml")]


def summary(n_stories: int, n_placed: int, n_broken: int) -> str:
    """Return the last line of a demo that played to its end."""
    stories = counted(n_stories, "story", "stories")
    return f"demo: {stories}, {counted(n_placed, 'pod')} placed, {counted(n_broken, 'rule')} broken"


def _flattened(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the exceptions in a group of groups."""
    return [
        leaf
        for one in group.exceptions
        for leaf in (_flattened(one) if isinstance(one, BaseExceptionGroup) else [one])
    ]
