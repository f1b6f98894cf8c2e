"""
`affinity-scheduler ui`: open the page of the scheduler that runs in the cluster.

`kubectl affinity ui` is the same command. It forwards a port to the scheduler with kubectl, and serves its page on
loopback with the token of the kubeconfig; without one the page asks for a token.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import signal
import webbrowser
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from scheduler.cli.flag_kinds import PORT, add, add_switch
from scheduler.cli.source_flags import add_cluster_arguments
from scheduler.errors import SettingsError

_FORWARDING: Final = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) ")
DEPLOYMENT: Final = "deployment/affinity-scheduler"
_START_S: Final = 30.0
_STOP_S: Final = 5.0


def add_scheduler_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name the scheduler in its cluster, as `port_forward` reads them."""
    parser.add_argument(
        "-n",
        "--namespace",
        default="kube-system",
        metavar="NS",
        help="namespace of the scheduler (default %(default)s)",
    )
    what = "what kubectl forwards to: a pod, or a deployment"
    add(parser, "--scheduler", "RESOURCE", DEPLOYMENT, what)
    add(parser, "--scheduler-port", "N", 10259, "the port of its pods", PORT)
    add_cluster_arguments(parser)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    add_scheduler_arguments(parser)
    parser.add_argument(
        "--port",
        type=partial(PORT, "--port"),
        default=0,
        metavar="N",
        help="port on 127.0.0.1; 0, the default, chooses a free one",
    )
    add_switch(parser, "--no-browser", "print the address and open no browser")


def run(args: argparse.Namespace) -> int:
    """Serve the page until SIGTERM, SIGINT or the end of the port-forward. Raises SettingsError."""
    check_kubectl()
    return asyncio.run(_serve(args))


def check_kubectl() -> None:
    """Raise SettingsError if there is no kubectl."""
    if shutil.which("kubectl") is None:
        raise SettingsError("kubectl", "", "no such command", "kubectl on the PATH")


async def _serve(args: argparse.Namespace) -> int:
    from scheduler.daemon.kube.credentials import load_credentials
    from scheduler.tools.page.proxy import page_proxy

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    credentials = await load_credentials(
        kubeconfig=args.kubeconfig, master=None, environ=os.environ, context=args.context
    )
    async with port_forward(args) as (process, forwarded):
        target = f"https://127.0.0.1:{forwarded}"
        try:
            async with page_proxy(target, credentials.authorization, port=args.port) as port:
                address = f"http://127.0.0.1:{port}/ui/"
                print(f"The scheduler's page is at {address}. Ctrl-C ends it.", flush=True)
                if await credentials.authorization() is None:
                    told = "The kubeconfig has no token, only a certificate: the page asks for a token."
                    print(told, flush=True)
                if not args.no_browser:
                    await asyncio.to_thread(webbrowser.open, address)
                return await _until_stopped(stop, process)
        except OSError as error:
            raise SettingsError("--port", "", f"{args.port} in use", "a free port") from error


async def _until_stopped(stop: asyncio.Event, process: Process) -> int:
    """Return 0 once stopped; 1 if the port-forward ends first, as it does when the pod is replaced."""
    stopped, ended = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(process.wait())
    for waiting in (await asyncio.wait((stopped, ended), return_when=asyncio.FIRST_COMPLETED))[1]:
        waiting.cancel()
    if stop.is_set():
        return 0
    print("The port-forward has ended; the scheduler's pod may have been replaced. Start the command again.")
    return 1


@asynccontextmanager
async def port_forward(args: argparse.Namespace) -> AsyncGenerator[tuple[Process, int], None]:
    """Run kubectl port-forward and yield it and its local port. Raises SettingsError if it does not start."""
    flags = [f"--namespace={args.namespace}"]
    if args.kubeconfig:
        flags.append(f"--kubeconfig={args.kubeconfig}")
    if args.context:
        flags.append(f"--context={args.context}")
    process = await asyncio.create_subprocess_exec(
        *("kubectl", *flags, "port-forward", "--address=127.0.0.1"),
        *(args.scheduler, f":{args.scheduler_port}"),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        # Ctrl-C in the terminal reaches this command alone, which ends kubectl.
        start_new_session=True,
    )
    try:
        yield process, await _forwarded_port(process, args.scheduler)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _forwarded_port(process: Process, resource: str) -> int:
    if process.stdout is None or process.stderr is None:
        raise AssertionError("started with pipes")
    try:
        async with asyncio.timeout(_START_S):
            async for line in process.stdout:
                if found := _FORWARDING.match(line):
                    return int(found[1])
            # The last line sums up what kubectl has tried before.
            problem = (await process.stderr.read()).decode(errors="replace").strip().rpartition("\n")[2]
            await process.wait()
    except TimeoutError:
        problem = f"nothing from kubectl port-forward after {_START_S:.0f} s"
    raise SettingsError(
        "--scheduler", resource, problem or "an end of kubectl port-forward", "a running scheduler"
    )
