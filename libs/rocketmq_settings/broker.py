"""Keys of `rocketmq-broker` beside those of both halves, with Java's defaults where Java has them.

Source: rocketmq-all-5.3.3: BrokerConfig.java, MessageStoreConfig.java.
"""

from typing import Annotated

import msgspec

from rocketmq_formats.store.delay_levels import DEFAULT_LEVELS
from rocketmq_formats.topics import MAX_QUEUES
from rocketmq_settings.declare import CONNECTIONS, Connections, Count, Millis, key
from rocketmq_settings.replica import ReplicaKeys

Bytes = Annotated[int, msgspec.Meta(ge=1, le=15 * 1024 * 1024)]
"""Of what goes into one frame; frames end at 16 MiB."""
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class BrokerKeys(ReplicaKeys, frozen=True):
    """Every key of `rocketmq-broker -c FILE`."""

    # Registration
    register_name_server_period: Annotated[
        Millis,
        key(
            "Time between two registrations, 10 to 60 seconds; changes and lost connections are registered at once.",
            zero_is_one=True,
        ),
    ] = 30_000
    register_broker_timeout_mills: Annotated[
        Millis, key("Time that a name server has for its answer; more than 3 seconds count as 3.")
    ] = 24_000
    send_heartbeat_timeout_millis: Annotated[
        Millis, key("Time that a heartbeat to a name server has for the connection.")
    ] = 1000
    compatible_with_old_name_srv: Annotated[
        bool,
        key(
            "Asks name servers only what those before 5.0 answer too: heartbeats are 322, not 904; the group is 105's."
        ),
    ] = True

    # Without a master (RIP-32)
    enable_slave_acting_master: Annotated[
        bool,
        key(
            "While the group has no master, its slave with the lowest brokerId serves consumers. The name servers need "
            "supportActingMaster.",
            set_by="spec.actingMaster",
            group_wide=True,
        ),
    ] = False
    sync_broker_member_group_period: Annotated[
        Millis, key("Time between two questions to a name server who is in the group.")
    ] = 1000

    # Permissions
    broker_permission: Annotated[
        int,
        msgspec.Meta(ge=0, le=7),
        key(
            "Permissions of this broker: 4 for reads and 2 for writes, in routes and for sends and pulls. "
            "updateBrokerConfig changes it at once; that stays, until this key gets another value."
        ),
    ] = 6

    # Topics and requests
    auto_create_topic_enable: Annotated[bool, key("The first send to a topic creates it.", group_wide=True)] = True
    cluster_topic_enable: Annotated[
        bool, key("The topic with the name of the cluster may be read and written.", group_wide=True)
    ] = True
    broker_topic_enable: Annotated[
        bool, key("The topic with the name of the broker may be read and written.", group_wide=True)
    ] = True
    trace_topic_enable: Annotated[
        bool, key("The topic for clients' traces, msgTraceTopicName, is made.", group_wide=True)
    ] = False
    msg_trace_topic_name: Annotated[str, key("Name of the topic for clients' traces.", group_wide=True)] = (
        "RMQ_SYS_TRACE_TOPIC"
    )
    auto_create_subscription_group: Annotated[
        bool, key("The first use of a consumer group creates it.", group_wide=True)
    ] = True
    allow_long_group_names: Annotated[
        bool,
        key(
            "Takes consumer groups with more than 120 characters, whose retries "
            "[a Java broker cannot load](formats.md#the-store-of-a-broker).",
            group_wide=True,
        ),
    ] = False
    default_topic_queue_nums: Annotated[
        int, msgspec.Meta(ge=1, le=MAX_QUEUES), key("Queues of a topic that a send creates.")
    ] = 8
    trace_on: Annotated[bool, key("Clients trace messages.")] = True
    region_id: Annotated[str, key("Region that clients put into their traces.")] = "DefaultRegion"
    store_reply_message_enable: Annotated[
        bool, key("Replies to requests of producers are stored too, in the topic CLUSTER_REPLY_TOPIC.")
    ] = True
    use_server_side_reset_offset: Annotated[
        bool,
        key(
            "A reset of a group (222) moves its offsets at the broker, also while no consumer is online; with "
            "false its consumers are notified."
        ),
    ] = True
    long_polling_enable: Annotated[bool, key("Pulls without messages are held until one arrives.")] = True
    short_polling_time_mills: Annotated[Millis, key("Time that a pull is held with longPollingEnable=false.")] = 1000
    slave_read_enable: Annotated[bool, key("Slaves serve consumers that are far behind.")] = False
    enable_property_filter: Annotated[bool, key("Only tags are filtered.", without_effect=True)] = False
    start_accept_send_request_time_stamp: Annotated[
        int, msgspec.Meta(ge=0), key("Time in milliseconds since 1970 before which sends are refused.")
    ] = 0
    send_thread_pool_queue_capacity: Annotated[
        Count, key("Sends that may wait for their copies; more are answered with SYSTEM_BUSY.")
    ] = 10_000
    pull_thread_pool_queue_capacity: Annotated[
        Count,
        key(
            "Pulls that may be held for new messages; with more, those of the host that has most are answered at once."
        ),
    ] = 100_000
    flush_consumer_offset_interval: Annotated[Millis, key("Time between two writes of the consumer offsets.")] = 5000
    skip_pre_online: Annotated[
        bool,
        key("A new master serves without taking over newer consumer offsets of other members first.", group_wide=True),
    ] = False
    message_delay_level: Annotated[str, key("The delay of each level.", group_wide=True)] = DEFAULT_LEVELS
    max_connections: Annotated[
        Connections,
        key(
            "Connections of each port; a new one above it replaces a silent one of the host with the most, "
            "or is refused if that is its own host."
        ),
    ] = CONNECTIONS

    # Store
    mapped_file_size_consume_queue: Annotated[
        int, msgspec.Meta(ge=20, le=2**31 - 1), key("Bytes of one file of a consume queue, rounded up to units of 20.")
    ] = 300_000 * 20
    max_message_size: Annotated[Bytes, key("Bytes of the largest body.", group_wide=True)] = 4 * 1024 * 1024
    flush_interval_commit_log: Annotated[Millis, key("Time between two syncs of the commit log with ASYNC_FLUSH.")] = (
        500
    )
    flush_interval_consume_queue: Annotated[
        Millis, key("Consume queues are synced every second.", without_effect=True)
    ] = 1000
    sync_flush_timeout: Annotated[Millis, key("Time that a send waits for the disk with SYNC_FLUSH.")] = 5000
    slave_timeout: Annotated[Millis, key("Time that a send waits for its copies.")] = 3000
    file_reserved_time: Annotated[
        int, msgspec.Meta(ge=1, le=87_600), key("Hours that files of the commit log are kept.", group_wide=True)
    ] = 72
    delete_when: Annotated[str, key("Hours of the day in which expired files are deleted, with `;` between them.")] = (
        "04"
    )
    disk_max_used_space_ratio: Annotated[
        Percent,
        key(
            "Per cent of the disk above which expired files are deleted at any hour; less than 10 counts as 10, more "
            "than 95 as 95."
        ),
    ] = 75
    disk_space_clean_forcibly_ratio: Annotated[
        Percent,
        key(
            "Per cent of the disk above which the oldest files are deleted before their time; less than 30 counts as "
            "30, more than 85 as 85."
        ),
    ] = 85
    disk_space_warning_level_ratio: Annotated[
        Percent,
        key("Per cent of the disk above which sends are refused; less than 35 counts as 35, more than 90 as 90."),
    ] = 90
    access_message_in_memory_max_ratio: Annotated[
        int,
        msgspec.Meta(ge=1, le=100),
        key("Per cent of the machine's memory in which the end of the log is assumed to be."),
    ] = 40
    max_transfer_bytes_on_message_in_memory: Annotated[
        Bytes, key("Bytes of one pull from memory.", zero_is_one=True)
    ] = 256 * 1024
    max_transfer_count_on_message_in_memory: Annotated[
        Count, key("Messages of one pull from memory.", zero_is_one=True)
    ] = 32
    max_transfer_bytes_on_message_in_disk: Annotated[Bytes, key("Bytes of one pull from disk.", zero_is_one=True)] = (
        64 * 1024
    )
    max_transfer_count_on_message_in_disk: Annotated[
        Count, key("Messages of one pull from disk.", zero_is_one=True)
    ] = 8

    # Order
    lock_in_strict_mode: Annotated[
        bool,
        key(
            "Consumers in order hold a queue only if more than half of totalReplicas agree, so never two at a time, "
            "also while the master changes. A replica agrees to nothing in its first minute.",
            group_wide=True,
        ),
    ] = False
    total_replicas: Annotated[
        Count,
        key(
            "Replicas of the group, for lockInStrictMode, if name servers do not know more members. With 1 the mode "
            "has no effect until they do.",
            set_by="spec.replicas",
            zero_is_one=True,
        ),
    ] = 1

    transient_store_pool_enable: Annotated[
        bool, key("The log is always written into mapped files.", without_effect=True)
    ] = False
    transient_store_pool_size: Annotated[
        Count, key("The log is always written into mapped files.", without_effect=True)
    ] = 5
    enable_remote_escape: Annotated[
        bool,
        key(
            "While a slave acts as master, it sends delayed messages that are due to another group. Needs "
            "enableSlaveActingMaster.",
            set_by="spec.actingMaster",
            group_wide=True,
        ),
    ] = False

    # Without a counterpart in Java
    shutdown_wait_ms: Annotated[Millis, key("Time that a stopping broker waits for copies of what it accepted.")] = 3000
    log_check_bytes_per_second: Annotated[
        int,
        msgspec.Meta(ge=0, le=2**31 - 1),
        key("Speed at which the whole log is read in search of damage, also of consume queues; 0 switches it off."),
    ] = 1024 * 1024
