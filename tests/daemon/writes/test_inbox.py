"""The inbox: order, limit, wake-ups."""

import asyncio

from scheduler.daemon.writes.inbox import Inbox
from scheduler.engine.model.stimuli import NodeGone


def gone(*names: str) -> list[NodeGone]:
    return [NodeGone(name) for name in names]


async def test_stimuli_are_taken_in_the_order_they_came() -> None:
    inbox = Inbox()
    await inbox.put(gone("a", "b"))
    inbox.put_now(NodeGone("c"))
    await inbox.put(gone("d"))
    assert inbox.take(3) == gone("a", "b", "c")
    assert inbox.take(3) == gone("d")
    assert inbox.take(3) == []


async def test_informers_wait_while_it_is_full_and_results_do_not() -> None:
    inbox = Inbox(high_water=2)
    await inbox.put(gone("a", "b", "c"))
    held = asyncio.create_task(inbox.put(gone("d")))
    inbox.put_now(NodeGone("answer"))
    await asyncio.sleep(0)
    assert (held.done(), len(inbox)) == (False, 4)
    inbox.take(3)
    await held
    assert inbox.take(9) == gone("answer", "d")


async def test_the_reader_is_woken_by_stimuli_and_by_nudges() -> None:
    """One nudge wakes it once; otherwise the wait ends with its timeout."""
    inbox = Inbox()
    waiting = asyncio.create_task(inbox.wait(None))
    await asyncio.sleep(0)
    inbox.put_now(NodeGone("a"))
    await waiting
    inbox.take(1)
    inbox.nudge()
    await inbox.wait(None)
    await inbox.wait(0.0)
    assert len(inbox) == 0
