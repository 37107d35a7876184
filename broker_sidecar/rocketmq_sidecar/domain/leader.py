"""Which controller leads: asked of all of them at once (1005), again and again until one is known. Pure.

A leader is given up when it says that it does not lead (2007), when its connection breaks, and when it has not answered
for a while; one that hangs is still named by the others for some time, so its name then counts only from itself.
"""

from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader
from rocketmq_sidecar.domain.actions import Ask
from rocketmq_sidecar.domain.questions import metadata


class LeaderFinder:
    """Knows the leader or looks for it."""

    def __init__(self, controllers: tuple[str, ...], *, interval: float) -> None:
        """`interval`: seconds between two rounds of asking."""
        self.leader: str | None = None
        self._controllers = controllers
        self._interval = interval
        self._asked: dict[str, Ask] = {}
        self._suspects: set[str] = set()
        self._hearsay: str | None = None
        self._round_at = float("-inf")

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every controller, the leader among them even if it is known by another name than the configuration's."""
        if self.leader is None or self.leader in self._controllers:
            return self._controllers
        return (*self._controllers, self.leader)

    @property
    def wake_at(self) -> float | None:
        """When `questions` wants to be called."""
        return self._round_at if self.leader is None else None

    def questions(self, now: float) -> tuple[Ask, ...]:
        """Whom to ask now."""
        if self.leader is None and self._hearsay is not None and now >= self._round_at:
            self.leader, self._hearsay = self._hearsay, None
        if self.leader is not None or now < self._round_at:
            return ()
        self._round_at = now + self._interval
        asks = tuple(metadata(address, now) for address in self._controllers if address not in self._asked)
        self._asked.update((ask.address, ask) for ask in asks)
        return asks

    def on_answer(self, ask: Ask, said: GetMetaDataResponseHeader | None) -> None:
        """What a controller says of the quorum; None without an answer that can be read."""
        if self._asked.get(ask.address) is not ask:
            return  # of an earlier life
        del self._asked[ask.address]
        if said is None:
            return
        self.heard(ask.address)
        named = said.controller_leader_address or None
        if self.leader is not None:
            return
        if said.is_leader:
            self.leader, self._hearsay = ask.address, None
        elif named is not None and named not in self._suspects:
            if named in self._controllers:
                self.leader = named
            else:
                # Perhaps a configured one by another name, whose own answer is on its way.
                self._hearsay = named

    def heard(self, address: str) -> None:
        """It answered something: it does not hang."""
        self._suspects.discard(address)

    def not_leader(self, address: str) -> None:
        """It said so itself."""
        self._give_up(address)

    def suspect(self, address: str) -> None:
        """It does not answer, or cannot be reached."""
        self._suspects.add(address)
        self._give_up(address)

    def reset(self) -> None:
        """All connections are closed; what was asked will not be answered."""
        self.leader = self._hearsay = None
        self._asked.clear()
        self._suspects.clear()
        self._round_at = float("-inf")

    def _give_up(self, address: str) -> None:
        if address == self.leader:
            self.leader = None
        if address == self._hearsay:
            self._hearsay = None
