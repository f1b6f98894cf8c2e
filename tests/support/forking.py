"""
Runs `python -m MODULE` in a process forked from one that has imported the product: 0.7 s of CPU less at each start.

Arguments, environment, working folder, output, signals and exit code are those of a new interpreter. What is about the
start itself, or about memory, starts an interpreter.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
from asyncio import StreamReader, StreamReaderProtocol
from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: What daemons import when they start.
_IMPORTED: Final = (
    "scheduler.cli.enforce",
    "scheduler.daemon.loop.app",
    "scheduler.tools.enforcer.loop",
    "scheduler.tools.page.cluster_page",
    "scheduler.tools.webhook.app",
)
_NUMBER: Final = struct.Struct("i")
#: Above the arguments and the environment of any request.
_REQUEST_BYTES: Final = 1 << 17


class Forked:
    """A process that runs; as `asyncio.subprocess.Process`, which is for children only."""

    def __init__(self, pid: int, end: StreamReader, stdout: StreamReader, stderr: StreamReader) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self._ended = asyncio.create_task(_last_number(end))

    @property
    def returncode(self) -> int | None:
        """Return the exit code, -N after signal N; None while it runs."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        """Wait for its end and return the exit code."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        """Send a signal. Raises: ProcessLookupError if it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError(self.pid)
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    async def communicate(self) -> tuple[bytes, bytes]:
        """Wait for its end and return standard output and standard error."""
        output, errors, _ = await asyncio.gather(self.stdout.read(), self.stderr.read(), self.wait())
        return output, errors


async def forked(
    module: str, *arguments: str, options: Sequence[str] = ("-W", "error"), folder: Path | None = None
) -> Forked:
    """Start `python OPTIONS -m MODULE ARGUMENTS` in `folder`, or in that of this process."""
    end, stdout, stderr = [await _pipe() for _ in range(3)]
    descriptors = [end[1], stdout[1], stderr[1]]
    request = json.dumps([module, arguments, str(folder or Path.cwd()), dict(os.environ)]).encode()
    socket.send_fds(_server(*options), [request], descriptors)
    for each in descriptors:
        os.close(each)
    return Forked(await _number(end[0]), end[0], stdout[0], stderr[0])


async def _pipe() -> tuple[StreamReader, int]:
    """Return a reader of a new pipe, and where it is written to."""
    ours, its = os.pipe()
    reader = StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: StreamReaderProtocol(reader), os.fdopen(ours, "rb", buffering=0)
    )
    return reader, its


async def _number(reader: StreamReader) -> int:
    number: int = _NUMBER.unpack(await reader.readexactly(_NUMBER.size))[0]
    return number


async def _last_number(reader: StreamReader) -> int:
    """Return the number when the pipe has ended too, which closes it."""
    number = await _number(reader)
    await reader.read()
    return number


@functools.cache
def _server(*options: str) -> socket.socket:
    """Return where the process with these options of Python takes requests. It ends with this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, *options, "-m", "tests.support.forking", str(its.fileno())]
        process = subprocess.Popen(command, pass_fds=[its.fileno()])

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


def _requested(requests: socket.socket) -> str | None:
    """Return the module, in a forked process for each request; None in this one when there will be no more."""
    # Those of the terminal are for the programs.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
        if not message:
            return None
        if os.fork() == 0:
            requests.close()
            return _program(message, *descriptors)
        for each in descriptors:
            os.close(each)


def _program(message: bytes, told: int, stdout: int, stderr: int) -> str:
    """Fork. Return the module in the new process; tell its id, and its exit code when it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        os.close(stdout)
        os.close(stderr)
        os.write(told, _NUMBER.pack(pid))
        os.write(told, _NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
        os._exit(0)
    os.close(told)
    for its, standard in ((stdout, 1), (stderr, 2)):
        os.dup2(its, standard)
        os.close(its)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module, arguments, folder, environment = json.loads(message)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    return str(module)


if __name__ == "__main__":
    for imported in _IMPORTED:
        importlib.import_module(imported)
    with socket.socket(fileno=int(sys.argv[1])) as given:
        chosen = _requested(given)
    if chosen:
        runpy.run_module(chosen, run_name="__main__", alter_sys=True)
