"""EC2's limits of an account and region: token buckets by request, and by instance for the calls that move instances.

https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
"""

from __future__ import annotations

import threading
import time

# Tokens at once, and tokens a second.
REQUESTS = {
    "DescribeInstances": (100, 20),
    "DescribeSpotInstanceRequests": (100, 20),
    "StartInstances": (5, 2),
    "StopInstances": (50, 5),
    "TerminateInstances": (50, 5),
}
INSTANCES = {"StartInstances": (1000, 2), "StopInstances": (1000, 20), "TerminateInstances": (1000, 20)}


class Bucket:
    """One token bucket; it is full at first."""

    def __init__(self, burst: int, rate: int) -> None:
        self.burst, self.rate, self.tokens, self.at = burst, rate, float(burst), time.monotonic()

    def has(self, tokens: int) -> bool:
        now = time.monotonic()
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        return self.tokens >= tokens


class Limits:
    """The buckets of every account and region."""

    def __init__(self) -> None:
        self._buckets: dict[tuple, Bucket] = {}
        self._lock = threading.Lock()

    def _bucket(self, kind: str, table: dict, where: tuple, action: str) -> Bucket | None:
        if action not in table:
            return None
        return self._buckets.setdefault((kind, action, *where), Bucket(*table[action]))

    def admits(self, account: str, region: str, action: str, instances: int) -> bool:
        """Whether the call may go ahead; it costs a request if so."""
        with self._lock:
            request = self._bucket("requests", REQUESTS, (account, region), action)
            moved = self._bucket("instances", INSTANCES, (account, region), action)
            if request and not request.has(1) or moved and not moved.has(instances):
                return False
            if request:
                request.tokens -= 1
            return True

    def moved(self, account: str, region: str, action: str, instances: int) -> None:
        """A call has moved instances."""
        with self._lock:
            bucket = self._bucket("instances", INSTANCES, (account, region), action)
            if bucket:
                bucket.tokens -= instances
