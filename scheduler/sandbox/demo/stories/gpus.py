"""Pods that share the GPUs of a cluster, some of which want two of one fabric."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from scheduler.sandbox.demo.display import Scene
from scheduler.sandbox.demo.pod_watch import is_ready, node_of
from scheduler.sandbox.demo.rule_check import devices_of
from scheduler.sandbox.demo.stage import DEVICES, Stage, Story
from scheduler.sandbox.demo.waiting import until

_NAMESPACE: Final = "models"
_SERVERS: Final = 6
#: One for each node, and one that waits.
_RUNS: Final = 7
_LETTERS: Final = {"inference": "i", "training": "T"}


async def _play(stage: Stage) -> None:
    await stage.apply("16-inference.yaml")
    await stage.wait_ready(_SERVERS)
    await stage.apply("16-training.yaml")
    n_ready = _SERVERS + _RUNS - 1
    await until(
        lambda: sum(is_ready(pod) for pod in stage.watch.pods([_NAMESPACE])) == n_ready,
        lambda: f"not exactly {n_ready} pods run",
    )
    await stage.wait_refused(_NAMESPACE, 1)
    told = [re.sub("  +", "  ", line.strip()) for line in await stage.explain(_NAMESPACE)]
    reason = next((line for line in told if "1 of 4 devices free" in line), None)
    move = next((line for line in told if "leaves node" in line), None)
    if reason is None or move is None:
        return stage.expect(holds=False, claim=f"explain names free devices and a pod to leave, found {told}")
    stage.show.quote([reason[reason.index("request") :], "WHAT WOULD HELP", move])
    await _scene(stage, "stuck")

    await stage.scale(_NAMESPACE, "inference", _SERVERS - 1)
    await stage.wait_ready(_SERVERS - 1 + _RUNS)
    await _scene(stage, "fixed")
    stage.draw(
        {"i": "a server's GPU", "T": "a GPU of a training run", ".": "free", "[..]": "two GPUs of one fabric"}
    )
    return stage.show.good(
        "a server leaves, as `explain` proposes: its fabric is free, and every run has two GPUs of one"
    )


async def _scene(stage: Stage, moment: str) -> None:
    """Keep who has which GPU; raise StoryFailed unless each training run has both GPUs of one fabric, on its node."""
    pods = {pod["metadata"]["name"]: pod for pod in await stage.pods()}
    letter_by_gpu: dict[tuple[str, str], str] = {}
    for claim in await stage.claims():
        for device in devices_of(claim):
            (pod,) = (pods[one["name"]] for one in claim["status"]["reservedFor"])
            letter = _LETTERS[pod["metadata"]["labels"]["app"]]
            letter_by_gpu[device["pool"], device["device"]] = letter
            stage.expect(device["pool"] == node_of(pod), f"a GPU of {node_of(pod)}, found {device}")
    drawn: dict[str, str] = {}
    whole = 0
    for each in await stage.api.items("ResourceSlice", DEVICES):
        fabrics: defaultdict[str, str] = defaultdict(str)
        for device in each["spec"]["devices"]:
            fabric = device["attributes"]["fabric"]["string"]
            fabrics[fabric] += letter_by_gpu.get((each["spec"]["pool"]["name"], device["name"]), ".")
        whole += sum(gpus == "TT" for gpus in fabrics.values())
        drawn[f"node {int(each['spec']['nodeName'][-4:])}"] = "".join(
            f"[{fabrics[one]}]" for one in sorted(fabrics)
        )
    waiting = "".join(_LETTERS[pod["metadata"]["labels"]["app"]] for pod in pods.values() if not node_of(pod))
    stage.expect(whole == _RUNS - len(waiting), f"a fabric for each run that has a node, found {drawn}")
    stage.scenes.append(Scene(moment, drawn, waiting))


STORY: Final = Story(
    "Devices of one fabric",
    "Every node has four GPUs, in two pairs that a fast fabric joins. A training run asks for two of one fabric: a "
    "free GPU on every node is not enough.",
    _play,
    since_minor=36,  # extended resources of a device class
)
