"""Official clients that ask and reply by messages, at a group of ours."""

import pytest

from tests.interop.native import NativeGroup
from tests.lab import clients

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True)]


def test_an_official_producer_gets_the_reply_to_its_request(native: NativeGroup) -> None:
    topic, folder, namesrv = "native-requests", native.folder / "requests", native.namesrv_addr
    native.make_topics(topic, queues=2)
    with clients.Replier(folder / "replier", nameservers=namesrv, group="native-repliers", topic=topic) as replier:
        replies = clients.ask(folder / "asker", nameservers=namesrv, topic=topic, count=3)
        assert replies == [f"reply to request {number}" for number in range(3)]
        replier.wait_until("what the broker said of each", lambda: len(replier.outcomes) == 3)
        assert set(replier.outcomes) == {"SEND_OK"}
        replier.finish()
