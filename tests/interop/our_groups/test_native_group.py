"""Official tools and clients at a group of ours: a topic created by mqadmin, the Java producer at full speed through a
kill and a hang of the master, every acknowledged message read back by the Java consumer."""

import pytest

from rocketmq_demo.apache.ledger import Ledger, audit
from tests.interop.faults import longest_gap
from tests.interop.lab import CLUSTER
from tests.interop.native import NativeGroup

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True)]

TOPIC = "native-ledger"


def test_java_producer_through_kill_and_hang(native: NativeGroup) -> None:
    group = native
    (made,) = group.mqadmin(f"updateTopic -t {TOPIC} -c {CLUSTER} -r 4 -w 4")
    assert "create topic to" in made
    ledger = Ledger(
        group.folder / "ledger",
        nameservers=group.namesrv_addr,
        topic=TOPIC,
        seconds=600,
        threads=4,
        pause_ms=0,
        timeout_ms=1000,
    )
    try:
        before = group.whole()
        group.wait_sends(ledger, 1000)

        replica = group.master(before)
        replica.process.kill9()
        after = group.elected(before)
        group.wait_sends(ledger, 1000)
        assert after.master_id != before.master_id
        replica.start()
        before = group.whole()
        assert before.addresses.keys() == {1, 2, 3}, "the replica that came back is the member it was"

        replica = group.master(before)
        replica.process.suspend()
        try:
            group.elected(before)
            group.wait_sends(ledger, 1000)
        finally:
            replica.process.resume()
        group.whole()
        group.wait_sends(ledger, 1000)
        ledger.finish()
    finally:
        ledger.close()
    acknowledged = [one for one in ledger.acknowledged() if one.status == "SEND_OK"]
    print(f"{len(acknowledged)} acknowledged, longest gap {longest_gap(acknowledged):.3f} s")
    found = audit(group.folder / "audit", nameservers=group.namesrv_addr, topic=TOPIC, ledger=ledger.path)
    assert found["complete"]
    assert found["missingCount"] == 0, found
    assert found["duplicateCount"] == 0, found
