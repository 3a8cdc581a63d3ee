"""The consumer's counts. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class ConsumerMetrics:
    """Counts since the start, by answers and calls, never by records. User's thread."""

    polls: int = 0
    """Calls of poll and its kin; of an iteration, one for each time that it takes records."""
    empty_polls: int = 0
    """Those that brought nothing by their time-out."""
    poll_wait_s: float = 0.0
    """Seconds that polls waited for brokers: near the run's whole time when the user is the faster side."""
    records: int = 0
    """Taken by polls; those of an iteration that is broken off count, too."""
    bytes: int = 0
    """Of batches, as they came (compressed)."""
    fetches: int = 0
    """Answered fetch requests."""
    empty_fetches: int = 0
    """Those of them that brought no records."""
    failed_fetches: int = 0
    """Fetch requests that the broker did not answer, or refused whole."""
    rebalances: int = 0
    """Shares that this member was given."""
    memberships_lost: int = 0
    commits: int = 0
    """Commits that the group stored."""
    failed_commits: int = 0
    """Commits that were refused or not answered; one that is tried again counts each time."""

    def snapshot(self) -> dict[str, object]:
        """Return all counts by name."""
        return asdict(self)
