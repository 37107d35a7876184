"""The routes as they are sent, encoded once per change: clients ask for each of their topics every 30 s, without end.

Called for every 105. `RouteTables` says which topic's route may have changed, the rest is forgotten as a whole.
"""

from collections.abc import Callable

from rocketmq_formats.remoting.nameserver import TopicRouteData, encode_route

MAX_KEPT = 50_000
"""Encoded routes kept in each encoding; the oldest goes first. A route has some 300 bytes and 100 more per broker."""


class RouteAnswers:
    """Encoded routes by topic, in both encodings."""

    def __init__(self, find: Callable[[str], TopicRouteData | None], *, max_kept: int = MAX_KEPT) -> None:
        """`find` makes the route of a topic from the tables."""
        self._find = find
        self._max_kept = max_kept
        self._standard: dict[str, bytes] = {}
        self._loose: dict[str, bytes] = {}

    def get(self, topic: str, *, standard: bool) -> bytes | None:
        """The body of 105's answer; None for a topic without a route. `standard`: JSON as V4_9_4 and later read it."""
        kept = self._standard if standard else self._loose
        body = kept.get(topic)
        if body is None:
            route = self._find(topic)
            if route is None:
                return None
            body = encode_route(route, standard=standard)
            if len(kept) >= self._max_kept:
                del kept[next(iter(kept))]
            kept[topic] = body
        return body

    def forget(self, topic: str) -> None:
        """The route of `topic` may be another one now."""
        self._standard.pop(topic, None)
        self._loose.pop(topic, None)

    def clear(self) -> None:
        """All routes may be others now: what they are made from has changed."""
        self._standard.clear()
        self._loose.clear()
