"""One host fills no table of a broker for the clients of others."""

from pathlib import Path

import pytest

from rocketmq_broker.domain.consuming import members
from rocketmq_broker.domain.consuming.members import Client, Members, NoRoomError
from rocketmq_formats.codes import ResponseCode
from tests.broker.broker_kit import running
from tests.broker.consuming.test_consumers import heartbeat

CLIENT = Client("c", "JAVA", 1)


class From:
    def __init__(self, host: str) -> None:
        self.host = host


def test_memberships(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MAX_MEMBERSHIPS", 6)
    table: Members[str] = Members(lambda key: key[0])
    for number in range(3):
        table.add(f"made up {number}", "s1", CLIENT)
    with pytest.raises(NoRoomError, match="one host"):
        table.add("more", "s2", CLIENT)
    assert table.add("G", "a1", CLIENT)
    table.remove_all("s1")
    assert table.add("more", "s2", CLIENT)


async def test_a_heartbeat_without_room_is_refused_and_those_of_members_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "MAX_MEMBERSHIPS", 2)
    async with running(tmp_path) as group:
        assert (await group.call(heartbeat(group="G"))).code == ResponseCode.SUCCESS
        refused = await group.call(heartbeat(group="H"))
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "one host" in (refused.remark or "")
        assert (await group.call(heartbeat(group="G"))).code == ResponseCode.SUCCESS
