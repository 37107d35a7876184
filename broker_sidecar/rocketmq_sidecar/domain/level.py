"""Which replicas have everything up to an offset: what a master that hands over waits for. Pure; used by `ha_server`
after each acknowledgement, while somebody waits."""

from rocketmq_sidecar.domain.ha_master import Mastership


class LevelWatch:
    """One wait."""

    def __init__(self, number: int, offset: int) -> None:
        self.number = number
        self._offset = offset
        self._told: tuple[frozenset[int], bool] | None = None

    def look(self, master: Mastership) -> tuple[frozenset[int], bool] | None:
        """Who acknowledged it all, and whether all copies that sends ask for are there; None if that is not new."""
        level = frozenset(broker_id for broker_id, ack in master.acks.items() if ack >= self._offset)
        now = level, master.acked >= self._offset
        if now == self._told:
            return None
        self._told = now
        return now
