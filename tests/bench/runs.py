"""The measurements of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tests.bench.attacks import ATTACKS, Attack
from tests.bench.core_level import measure_core
from tests.bench.hold_clusters import HoldSize
from tests.bench.hold_situations import SITUATIONS, Situation
from tests.bench.holds import HoldResult, measure_holds, too_long
from tests.bench.hostile_level import measure_hostile
from tests.bench.http_level import HttpResult, measure_http, median_run
from tests.bench.results import Results, this_machine
from tests.bench.scene import Scene, Size, build_scene, sized
from tests.bench.schedulers import BINDING_ONLY, OURS, kube_scheduler, other_checkout
from tests.bench.servers import available, beside_servers
from tests.bench.shapes import SHAPE_BY_NAME, SHAPES, Shape

Level = Literal["core", "http", "all"]

#: Crowds by which the cost is compared, on 5,000 nodes.
_CROWDS: Final = (1000, 150_000)
#: The shapes that are measured unless others are requested.
FLAT_SHAPES: Final = (
    "basic",
    "anti-affinity",
    "affinity-zone",
    "preferred-anti-affinity",
    "ns-anti-affinity",
    "spread-hard",
    "spread-soft",
)
_HTTP_SHAPES: Final = ("basic", "anti-affinity", "affinity-zone", "ns-anti-affinity", "spread-hard")


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of the command line; without shapes, each level measures its default shapes."""

    level: Level = "all"
    shapes: tuple[Shape, ...] = ()
    n_nodes: int | None = None
    n_pods: int | None = None
    scheduler_binary: Path | None = None
    #: Another checkout of this project to run beside this one.
    other_checkout: Path | None = None
    #: Rounds over HTTP, of all shapes in turn: a machine's minutes differ by more than shapes do.
    n_rounds: int = 3
    #: Attacks to measure in place of all levels; None for none, and without names all.
    attacks: tuple[Attack, ...] | None = None
    #: Situations in which to measure holds in place of all levels, as for attacks.
    situations: tuple[Situation, ...] | None = None

    def runs(self, level: str) -> bool:
        """Return whether this level is part of the run."""
        return self.level in (level, "all")

    def size(self, shape: Shape, n_crowd: int = 0) -> Size:
        """Return the shape's size; raise SettingsError if its pods cannot all be placed."""
        return sized(shape, n_nodes=self.n_nodes, n_pods=self.n_pods, n_crowd=n_crowd)

    def scene(self, shape: Shape, n_crowd: int = 0) -> Scene:
        """Return the shape's objects."""
        return build_scene(shape, self.size(shape, n_crowd))

    def decided(self) -> Sequence[Shape]:
        """Return the requested shapes of which decisions are measured on their own; by default all of them."""
        return [shape for shape in self.shapes or SHAPES if not shape.is_http_only]

    def chosen(self, by_default: Sequence[str]) -> Sequence[Shape]:
        """Return the requested shapes."""
        return self.shapes or [SHAPE_BY_NAME[name] for name in by_default]


def check_sizes(asked: Asked) -> None:
    """Raise SettingsError before anything is measured if a shape cannot have the requested size."""
    for shape in asked.shapes or SHAPES:
        asked.size(shape)


def run(asked: Asked, say: Callable[[str], None]) -> Results:
    """Measure all that was requested; raise RuntimeError if a run fails."""
    if asked.attacks is not None:
        return _run_hostile(asked, asked.attacks or ATTACKS, say)
    if asked.situations is not None:
        return _run_holds(asked, asked.situations or SITUATIONS, say)
    results = Results(this_machine())
    if asked.runs("core"):
        _run_core(asked, results, say)
    if asked.runs("http"):
        _run_http(asked, results, say)
    return results


def _run_core(asked: Asked, results: Results, say: Callable[[str], None]) -> None:
    for shape in asked.decided():
        say(f"core {shape.name}")
        results.core.append(measure_core(asked.scene(shape)))
    n_nodes = asked.n_nodes or 5000
    # A crowd has to fit on the nodes: 30 of the 40 pods that each node holds.
    crowds = [max(1, n * n_nodes // 5000) for n in _CROWDS]
    for shape in asked.chosen(FLAT_SHAPES):
        if shape.is_http_only:
            continue
        for n_crowd in crowds:
            say(f"core {shape.name} among {n_crowd} running pods")
            results.flatness.append(measure_core(asked.scene(shape, n_crowd)))


def _run_http(asked: Asked, results: Results, say: Callable[[str], None]) -> None:
    contenders = [OURS, BINDING_ONLY]
    if asked.other_checkout is not None:
        contenders.append(other_checkout(asked.other_checkout))
    if asked.scheduler_binary is not None:
        contenders.append(kube_scheduler(asked.scheduler_binary))
    # It makes or binds claims on a real server.
    controller_manager = beside_servers("kube-controller-manager")
    for server in available():
        # The embedded cluster lacks APIs that kube-scheduler needs; its binary comes with a real server.
        against = [one for one in contenders if one.binary is None or server == "kube-apiserver"]
        rounds: dict[tuple[str, str], list[HttpResult]] = {}
        for number in range(1, asked.n_rounds + 1):
            for shape in asked.chosen(_HTTP_SHAPES):
                if shape.controller and server == "kube-apiserver" and controller_manager is None:
                    say(
                        f"http {server} {shape.name}: left out, it needs a kube-controller-manager beside the server"
                    )
                    continue
                if shape.churns:
                    say(f"http {server} {shape.name}: left out, it is measured in the core")
                    continue
                if shape.has_pod_groups and server != "kube-apiserver":
                    say(f"http {server} {shape.name}: left out, it needs a real server")
                    continue
                say(f"http {server} {shape.name}, round {number} of {asked.n_rounds}")
                scene = asked.scene(shape)
                # In another order each round: the first one meets a server that has not warmed up.
                able = [one for one in against if one is not BINDING_ONLY or shape.can_be_bound_only]
                turn = number % len(able)
                turned = [*able[turn:], *able[:turn]]
                for result in measure_http(scene, server, turned, controller_manager):
                    rounds.setdefault((result.shape, result.scheduler), []).append(result)
        results.http += [median_run(found) for found in rounds.values()]


def _run_hostile(asked: Asked, attacks: Sequence[Attack], say: Callable[[str], None]) -> Results:
    """Measure attacks on a real server if there is one; kube-scheduler needs one. Binding only is the floor."""
    results, server = Results(this_machine()), available()[-1]
    contenders = [OURS, BINDING_ONLY]
    if asked.scheduler_binary is not None and server == "kube-apiserver":
        contenders.append(kube_scheduler(asked.scheduler_binary))
    for attack in attacks:
        for contender in contenders:
            say(f"hostile {attack.name}, {contender.label} on {server}")
            found = measure_hostile(attack, server, contender)
            say(f"p50 {found.p50_ms:.0f} ms, p99 {found.p99_ms:.0f} ms, CPU {found.cpu_s:.1f} s")
            results.hostile.append(found)
    return results


def _run_holds(asked: Asked, situations: Sequence[Situation], say: Callable[[str], None]) -> Results:
    """Measure holds; a situation with a hold that is too long is measured again, and the shorter one counts."""
    found = measure_holds(situations, _hold_size(asked), say)
    if again := {result.situation for result in too_long(found)}:
        say(f"too long, measured once more: {', '.join(sorted(again))}")
        second = measure_holds([each for each in situations if each.name in again], _hold_size(asked), say)
        by_name = {result.situation: result for result in second}
        found = [_shorter(result, by_name.get(result.situation, result)) for result in found]
    return Results(this_machine(), holds=found)


def _shorter(result: HoldResult, other: HoldResult) -> HoldResult:
    return min(result, other, key=lambda each: each.longest_ms)


def _hold_size(asked: Asked) -> HoldSize:
    return HoldSize(asked.n_nodes or 5000)
