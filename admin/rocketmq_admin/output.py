"""What the commands print on standard output: mqadmin's layout, or one line of JSON.

The tables have mqadmin's bytes (tests/golden/mqadmin), odd blank lines included, so that scripts written for it still
work; only its order is not kept: it follows Java's hash tables, ours is sorted. The JSON keys are documented in
docs/rocketmq-admin.md and stay as they are.
"""

from collections.abc import Mapping, Sequence

from rocketmq_admin.brokers import BrokerEpochs
from rocketmq_admin.controllers import ConfigUpdated, ControllerConfig, Elected
from rocketmq_api.group_view import MemberView, QuorumView
from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader, InSyncReplica, ReplicasInfo
from rocketmq_runtime.terminal import one_line

Document = Mapping[str, object]
_LONGEST = 100_000
"""Characters of one value in a table."""


# getSyncStateSet


def sync_state_sets_table(sets: Mapping[str, ReplicasInfo]) -> str:
    parts = []
    for name, info in sorted(sets.items()):
        parts.append(
            f"\n#brokerName\t{_shown(name)}\n"
            f"#MasterBrokerId\t{_shown(info.master_broker_id)}\n"
            f"#MasterAddr\t{_shown(info.master_address)}\n"
            f"#MasterEpoch\t{info.master_epoch}\n"
            f"#SyncStateSetEpoch\t{info.sync_state_set_epoch}\n"
            f"#SyncStateSetNums\t{len(info.in_sync_replicas)}\n"
        )
        parts += [f"\nInSyncReplica:\t{_identity(replica)}\n" for replica in _by_id(info.in_sync_replicas)]
        parts += [f"\nNotInSyncReplica:\t{_identity(replica)}\n" for replica in _by_id(info.not_in_sync_replicas)]
    return "".join(parts)


def sync_state_sets_document(sets: Mapping[str, ReplicasInfo]) -> Document:
    return {
        "brokerSets": [
            {
                "brokerName": name,
                "masterBrokerId": info.master_broker_id,
                "masterAddress": info.master_address,
                "masterEpoch": info.master_epoch,
                "syncStateSetEpoch": info.sync_state_set_epoch,
                "inSyncReplicas": [_replica_document(replica) for replica in _by_id(info.in_sync_replicas)],
                "notInSyncReplicas": [_replica_document(replica) for replica in _by_id(info.not_in_sync_replicas)],
            }
            for name, info in sorted(sets.items())
        ]
    }


def _by_id(replicas: Sequence[InSyncReplica]) -> Sequence[InSyncReplica]:
    return sorted(replicas, key=lambda replica: replica.broker_id)


def _identity(replica: InSyncReplica) -> str:
    return (
        f"ReplicaIdentity{{brokerName='{_shown(replica.broker_name)}', brokerId={replica.broker_id}, "
        f"brokerAddress='{_shown(replica.broker_address)}', alive={'true' if replica.alive else 'false'}}}"
    )


def _replica_document(replica: InSyncReplica) -> Document:
    return {"brokerId": replica.broker_id, "brokerAddress": replica.broker_address, "alive": replica.alive}


# getBrokerEpoch


def broker_epochs_table(brokers: Sequence[BrokerEpochs]) -> str:
    parts = []
    for broker in brokers:
        parts.append(
            f"\n#clusterName\t{_shown(broker.cluster_name)}\n#brokerName\t{_shown(broker.broker_name)}\n"
            f"#brokerAddr\t{_shown(broker.address)}\n#brokerId\t{broker.broker_id}"
        )
        parts += [
            f"\n#Epoch: EpochEntry{{epoch={entry.epoch}, startOffset={entry.start_offset},"
            f" endOffset={entry.end_offset}}}"
            for entry in broker.epochs
        ]
        parts.append("\n")
    return "".join(parts)


def broker_epochs_document(brokers: Sequence[BrokerEpochs]) -> Document:
    return {
        "brokers": [
            {
                "clusterName": broker.cluster_name,
                "brokerName": broker.broker_name,
                "brokerId": broker.broker_id,
                "brokerAddress": broker.address,
                "maxOffset": broker.max_offset,
                "epochs": [
                    {"epoch": entry.epoch, "startOffset": entry.start_offset, "endOffset": entry.end_offset}
                    for entry in broker.epochs
                ],
            }
            for broker in brokers
        ]
    }


# electMaster


def elected_table(elected: Elected) -> str:
    """Without the members: mqadmin means to print them, but looks for them in the wrong place and never does."""
    return (
        f"\n#ClusterName\t{_shown(elected.cluster_name)}"
        f"\n#BrokerName\t{_shown(elected.broker_name)}"
        f"\n#BrokerMasterAddr\t{_shown(elected.header.master_address)}"
        f"\n#MasterEpoch\t{_shown(elected.header.master_epoch)}"
        f"\n#SyncStateSetEpoch\t{_shown(elected.header.sync_state_set_epoch)}\n"
    )


def elected_document(elected: Elected) -> Document:
    return {
        "clusterName": elected.cluster_name,
        "brokerName": elected.broker_name,
        "masterBrokerId": elected.header.master_broker_id,
        "masterAddress": elected.header.master_address,
        "masterEpoch": elected.header.master_epoch,
        "syncStateSetEpoch": elected.header.sync_state_set_epoch,
        "syncStateSet": list(elected.sync_state_set),
        "brokers": [
            {"brokerId": broker_id, "brokerAddress": address} for broker_id, address in sorted(elected.members.items())
        ],
    }


# getControllerMetaData


def metadata_table(metadata: GetMetaDataResponseHeader) -> str:
    return (
        f"\n#ControllerGroup\t{_shown(metadata.group)}"
        f"\n#ControllerLeaderId\t{_shown(metadata.controller_leader_id)}"
        f"\n#ControllerLeaderAddress\t{_shown(metadata.controller_leader_address)}"
        + "".join(f"\n#Peer:\t{_shown(peer)}" for peer in _peers(metadata))
        + "\n"
    )


def metadata_document(metadata: GetMetaDataResponseHeader) -> Document:
    peers: list[Document] = []
    for peer in _peers(metadata):
        peer_id, _, address = peer.partition(":")
        # JRaft controllers list host:port, the others id:host:port
        named = ":" in address and not peer.startswith("[")
        peers.append({"id": peer_id if named else None, "address": address if named else peer})
    return {
        "group": metadata.group,
        "controllerLeaderId": metadata.controller_leader_id,
        "controllerLeaderAddress": metadata.controller_leader_address,
        "peers": peers,
    }


def _peers(metadata: GetMetaDataResponseHeader) -> Sequence[str]:
    return [peer for peer in metadata.peers.split(";") if peer]


# getControllerMembers, addControllerMember, removeControllerMember: ours, mqadmin has none


def members_table(quorum: QuorumView) -> str:
    head = (
        f"#ControllerGroup\t{_shown(quorum.group)}\n"
        f"#Leader\t{_shown(quorum.leader_id or None)}\n"
        f"#Term\t{quorum.term}\n"
        f"#CommitIndex\t{quorum.commit_index}\n"
        f"#Lineage\t{_shown(quorum.lineage or None)}\n"
        f"#AnsweredBy\t{_shown(quorum.answered_by)}\n\n"
        f"{'#Id':<20}{'#Address':<32}{'#Role':<10}{'#Counts':<10}{'#Connected':<12}#MatchIndex\n"
    )
    parts = [head]
    for member in quorum.members:
        match = "-" if member.match_index is None else str(member.match_index)
        counts = "-" if member.counts is None else str(member.counts).lower()
        parts.append(
            f"{_shown(member.id):<20}{_shown(member.address):<32}{_role(member):<10}{counts:<10}"
            f"{str(member.connected).lower():<12}{match}\n"
        )
    return "".join(parts)


def members_document(quorum: QuorumView) -> Document:
    return {
        "group": quorum.group,
        "answeredBy": quorum.answered_by,
        "leaderId": quorum.leader_id or None,
        "term": quorum.term,
        "commitIndex": quorum.commit_index,
        "lineage": quorum.lineage or None,
        "members": [
            {
                "id": member.id,
                "address": member.address,
                "role": _role(member),
                "counts": member.counts,
                "connected": member.connected,
                "matchIndex": member.match_index,
            }
            for member in quorum.members
        ],
    }


def _role(member: MemberView) -> str:
    return "voter" if member.voter else "learner"


# cleanBrokerMetadata


def cleaned_table(broker_name: str) -> str:
    return f"clear broker {broker_name} metadata from controller success! \n"


def cleaned_document(cluster_name: str | None, broker_name: str, broker_ids: Sequence[int]) -> Document:
    return {
        "clusterName": cluster_name,
        "brokerName": broker_name,
        "brokerIds": list(broker_ids) or None,
        "cleaned": True,
    }


# getControllerConfig, updateControllerConfig


def configs_table(configs: Sequence[ControllerConfig]) -> str:
    parts = []
    for config in configs:
        parts.append(f"============{config.address}============\n")
        parts += [f"{_shown(key):<50}=  {_shown(value)}\n" for key, value in sorted(config.values.items())]
    return "".join(parts)


def configs_document(configs: Sequence[ControllerConfig]) -> Document:
    return {
        "controllers": [
            {"address": config.address, "config": dict(sorted(config.values.items()))} for config in configs
        ]
    }


def updated_table(key: str, value: str, results: Sequence[ConfigUpdated]) -> str:
    """Names the controllers that hold the new value; empty if none does."""
    done = ", ".join(result.address for result in results if result.error is None)
    return f"update controller config success![{done}]\n{key} : {value}\n" if done else ""


def updated_document(key: str, value: str, results: Sequence[ConfigUpdated]) -> Document:
    return {
        "key": key,
        "value": value,
        "controllers": [
            {
                "address": result.address,
                "updated": result.error is None,
                "error": None if result.error is None else one_line(result.error),
            }
            for result in results
        ],
    }


def _shown(value: object) -> str:
    """What came from the network, as a terminal may be given it; None as Java prints it."""
    return "null" if value is None else one_line(value, limit=_LONGEST)
