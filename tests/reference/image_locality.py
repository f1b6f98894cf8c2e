"""
ImageLocality: prefer nodes that hold the pod's images, more so if many nodes do.

Source: plugins/imagelocality/image_locality.go (kubernetes 1.36).
"""

from tests.reference.arithmetic import truncated
from tests.reference.question import Question

NAME = "ImageLocality"

_MB = 1024 * 1024
_LOWEST_BYTES = 23 * _MB
_HIGHEST_BYTES_PER_CONTAINER = 1000 * _MB


def scores(question: Question, feasible: list[str]) -> dict[str, int]:
    """Return 0 (23 MB or less of the images on the node) to 100 (1000 MB per container or more); never skipped."""
    spec = question.spec
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    wanted = [container.get("image") or "" for container in containers]
    wanted += [
        volume["image"].get("reference") or "" for volume in spec.get("volumes") or [] if volume.get("image")
    ]
    highest = _HIGHEST_BYTES_PER_CONTAINER * len(containers)
    result = {}
    for name in feasible:
        images = (question.nodes[name].get("status") or {}).get("images") or []
        held = {known for image in images for known in image.get("names") or []}
        total = 0
        for image in map(with_tag, wanted):
            if image in held:
                known = question.images[image]
                total += int(float(known.size_bytes) * (known.n_nodes / len(question.nodes)))
        total = max(_LOWEST_BYTES, min(total, highest))
        result[name] = truncated(100 * (total - _LOWEST_BYTES), highest - _LOWEST_BYTES)
    return result


def with_tag(image: str) -> str:
    """Return the image's name with `:latest` where it names neither tag nor digest."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
