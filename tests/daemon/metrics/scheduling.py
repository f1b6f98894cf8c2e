"""A scheduler without its shell whose cycles are observed: the machine of `tests.support.driving` and its metrics."""

from __future__ import annotations

import random
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.core.machine import Machine
from scheduler.engine.model.instructions import Attempted, GroupAttempted, Instruction
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS
from scheduler.engine.model.stimuli import CycleDue
from tests.support.driving import Driver

#: Samples of a scrape: (name, labels in order) -> value.
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Observed:
    """A driver whose instructions feed the metrics as the daemon does."""

    def __init__(self, *, settings: Settings | None = None, sampled: float = 0.1, **clock: Any) -> None:
        self.metrics = Metrics(version="1.2.3")
        self.driver = Driver(settings=settings)
        profiles = self.driver.profiles
        self.observer = self.metrics.cycle_observer(profiles, seed=1, sampled=sampled, **clock)
        self.driver.machine = Machine(
            state=self.driver.state,
            queue=self.driver.queue,
            profiles=profiles,
            rng=random.Random(1),
            observer=self.observer,
        )
        self.metrics.register_state(
            self.driver.queue, self.driver.state, self.driver.machine.preemptions.wasted
        )
        self.metrics.register_malformed(lambda: {"Pod": 1, "Node": 0})
        self.metrics.register_leader("affinity-scheduler", lambda: True)
        self.metrics.register_semantics(DEFAULT_SEMANTICS, DEFAULT_SEMANTICS.version)

    def cycle(self) -> list[Instruction]:
        told = self.driver.handle(CycleDue())
        self.observer.end()
        return self.tell(told)

    def tell(self, told: list[Instruction]) -> list[Instruction]:
        for instruction in told:
            if isinstance(instruction, Attempted):
                self.metrics.on_attempt(instruction, self.driver.now_s)
            elif isinstance(instruction, GroupAttempted):
                self.metrics.on_group_attempt(instruction, self.driver.now_s)
        return told

    def samples(self) -> Samples:
        return samples(self.metrics.render())


def samples(text: bytes) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]
