"""The rest of a partition whose scheme is not ready: how long, and whether it was said. Pure."""

from __future__ import annotations

from streamlet.base.backoff import Backoff

PAUSES = Backoff(initial=0.2, maximum=5.0)


class SchemeHold:
    """Decides when the scheme is asked again for a record."""

    def __init__(self) -> None:
        self.waits = False
        """Whether the last try found the scheme not ready. An attribute: it is looked at for each record."""
        self._failures = 0
        self._counted = 0
        self._until_s = 0.0

    def not_ready(self) -> bool:
        """Note that the scheme was not ready; True: for the first time since it was."""
        self.waits = True
        self._failures += 1
        return self._failures == 1

    def ready(self) -> None:
        """Note that the scheme decodes again."""
        self.waits = False
        self._failures = self._counted = 0
        self._until_s = 0.0

    def holds(self, now_s: float) -> bool:
        """Return whether the partition rests; asked at the begin of each turn."""
        # The try itself may have taken long (a call over the network), so its pause begins with the turn after it.
        if self._failures > self._counted:
            self._counted = self._failures
            self._until_s = now_s + PAUSES.delay(self._failures)
        return now_s < self._until_s
