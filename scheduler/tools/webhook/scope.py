"""
Whose pods the webhook looks at, and whether it refuses or only reports.

By default a second scheduler touches only its own pods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scheduler.tools.webhook.reviews import Allowed, Denied, Reported, Response, Review

#: Return the response to a request.
Reviewer = Callable[[Review], Response]


@dataclass(frozen=True, slots=True)
class Scope:
    """
    What a webhook may do.

    `schedulers`: the values of schedulerName whose pods it looks at; None for all. `refuses`: whether it refuses pods,
    or allows them with a warning.
    """

    schedulers: frozenset[str] | None = None
    refuses: bool = True

    def applied_to(self, reviewer: Reviewer) -> Reviewer:
        """Return the reviewer within this scope: pods of other schedulers are allowed as they are."""

        def review(request: Review) -> Response:
            pod = request.pod
            if pod is not None and self.schedulers is not None and pod.scheduler_name not in self.schedulers:
                return Allowed()
            response = reviewer(request)
            if self.refuses or not isinstance(response, Denied):
                return response
            return Reported(str(response.status["message"]))

        return review
