"""
ImageLocality: prefer nodes that already have the pod's images.

An image counts with its size times the share of all nodes that have it, so that a single node with a large image does
not attract every pod. The sum gives a score from 0 (23 MB or less) to 100 (1000 MB per container or more). Names are
compared as text, with `:latest` added to the pod's names that lack a tag.

Source: plugins/imagelocality/image_locality.go (kubernetes 1.36). Difference: upstream may use the number of nodes
with an image as of the node's last change; here it is always current.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from scheduler.engine.framework.interface import (
    FeasibleNodes,
    FinalScores,
    PodContext,
    PreScored,
    ScorePlugin,
)
from scheduler.engine.model.pods import MemoBySpec, Pod
from scheduler.engine.state.arrays import Amounts, Scores
from scheduler.engine.state.cluster_view import ClusterView

NAME: Final = "ImageLocality"

_MB: Final = 1024 * 1024
LOWEST_BYTES: Final = 23 * _MB
HIGHEST_BYTES_PER_CONTAINER: Final = 1000 * _MB


class ImageLocality(ScorePlugin):
    """Scores nodes by the images that they have. It refuses no node, so it registers no event."""

    name = NAME
    extension_points: ClassVar = ("score",)

    def __init__(self) -> None:
        self._wanted = MemoBySpec(_wanted)

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Return the scorer; no pod is skipped."""
        del feasible  # scores are absolute: nothing is compared between nodes
        images, n_containers = self._wanted.of(context.pod)
        return FinalScores(
            view.per_image(
                (NAME, images, n_containers),
                lambda: image_scores(present_bytes(images, view), n_containers),
            )
        )


def _wanted(pod: Pod) -> tuple[tuple[str, ...], int]:
    """Return the pod's images, with repetitions, and its number of containers, which image volumes have not."""
    spec = pod.spec
    containers = (*spec.init_containers, *spec.containers)
    images = (*(container.image for container in containers), *spec.image_volumes)
    return tuple(with_tag(image) for image in images), len(containers)


def with_tag(image: str) -> str:
    """Return the name, with `:latest` added if it has neither tag nor digest; a registry's port is not a tag."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def present_bytes(images: tuple[str, ...], view: ClusterView) -> Amounts:
    """Return the size of the images on each node, scaled by their share of nodes: int64 array of shape (n_rows,)."""
    total = np.zeros(view.n_rows, dtype=np.int64)
    for image in images:
        state = view.nodes.images.get(image)
        if state is not None:
            total[list(state.rows)] += int(state.size_bytes * (len(state.rows) / view.n_nodes))
    return total


def image_scores(present: Amounts, n_containers: int) -> Scores:
    """Return the bytes between the two thresholds as a score from 0 to 100: int16 array of shape (n_rows,)."""
    highest = HIGHEST_BYTES_PER_CONTAINER * n_containers
    clamped = np.where(present < LOWEST_BYTES, LOWEST_BYTES, np.minimum(present, highest))
    return (100 * (clamped - LOWEST_BYTES) // (highest - LOWEST_BYTES)).astype(np.int16)
