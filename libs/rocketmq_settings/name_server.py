"""Keys of `rocketmq-namesrv`, with Java's defaults where Java has them; those of an embedded controller come beside
them. updateNamesrvConfig changes those with `change`.

Source: rocketmq-all-5.3.3: NamesrvConfig.java, NettyServerConfig.java.
"""

from typing import Annotated

import msgspec

from rocketmq_settings.declare import CONNECTIONS, HOME, OPERATOR, Connections, LogFormat, LogLevel, Port, Settings, key

Millis = Annotated[int, msgspec.Meta(ge=10, le=86_400_000, extra={"unit": "ms"})]
"""Of a scan: more often than a hundred times a second would only heat the machine."""
Count = Annotated[int, msgspec.Meta(ge=1, le=100_000_000)]

IN_ONE_LOOP = key("One event loop handles all requests.", without_effect=True, change="next start")
"""Threads and queues of Java's."""


class NameServerKeys(Settings, frozen=True):
    """Every key of `rocketmq-namesrv -c FILE`."""

    # Ports and files
    listen_port: Annotated[
        int,
        msgspec.Meta(ge=1, le=65535),
        key("Port for brokers, clients and tools.", set_by=OPERATOR, change="next start"),
    ] = 9876
    bind_address: Annotated[
        str,
        key(
            "Address that the port binds to; 0.0.0.0 and :: are all, of IPv4 and IPv6.",
            set_by=OPERATOR,
            change="next start",
        ),
    ] = "0.0.0.0"  # noqa: S104 - brokers and clients on other hosts must reach it
    kv_config_path: Annotated[
        str, key("File of the KV configuration; a damaged file refuses the start.", set_by=OPERATOR, path=True)
    ] = "~/namesrv/kvConfig.json"
    config_store_path: Annotated[
        str,
        key("File in which updateNamesrvConfig keeps its changes.", set_by=OPERATOR, change="next start", path=True),
    ] = "~/namesrv/namesrv.properties"
    config_black_list: Annotated[
        str, key("Keys that updateNamesrvConfig refuses, with `;` between them.", change="next start")
    ] = "configBlackList;configStorePath;kvConfigPath"
    metrics_prom_exporter_port: Annotated[
        Port,
        key("Port of /metrics, /healthz and /readyz; 0 switches it off.", set_by=OPERATOR, change="next start"),
    ] = 0
    metrics_prom_exporter_host: Annotated[
        str, key("Address of that port.", default="bindAddress", set_by=OPERATOR, change="next start")
    ] = ""

    # Routes
    scan_not_active_broker_interval: Annotated[
        Millis,
        key(
            "Longest time between two scans for brokers that were silent for 120 s, or what they declared; one comes "
            "when the time of a silent broker is over. A lost connection counts at once.",
            change="at once",
        ),
    ] = 5000
    support_acting_master: Annotated[
        bool,
        key(
            "RIP-32: routes show the smallest slave as master of a group without one, if the group asks for it.",
            change="at once",
        ),
    ] = False
    notify_min_broker_id_changed: Annotated[
        bool, key("RIP-32: brokers are notified when the smallest brokerId of their group changes.", change="at once")
    ] = False
    order_message_enable: Annotated[bool, key("Routes contain ORDER_TOPIC_CONFIG.", change="at once")] = False
    return_order_topic_config_to_broker: Annotated[
        bool, key("Answers to registrations contain ORDER_TOPIC_CONFIG.", change="at once")
    ] = True
    need_wait_for_service: Annotated[
        bool, key("Routes are answered only waitSecondsForService after the start.", change="at once")
    ] = False
    wait_seconds_for_service: Annotated[
        int, msgspec.Meta(ge=0, le=86_400), key("Seconds for needWaitForService.", change="at once")
    ] = 45
    delete_topic_with_broker_registration: Annotated[
        bool, key("Topics that a master's full registration leaves out are removed from it.", change="at once")
    ] = False
    enable_all_topic_list: Annotated[bool, key("Request 206 is answered.", change="at once")] = True
    enable_topic_list: Annotated[bool, key("Requests 224 and 311 to 313 are answered.", change="at once")] = True

    # Bounds
    max_connections: Annotated[
        Connections,
        key(
            "Connections; a new one above it replaces a silent one of the host with the most, "
            "or is refused if that is its own host.",
            change="next start",
        ),
    ] = CONNECTIONS
    max_brokers: Annotated[
        Count,
        key(
            "Broker names; registrations of more are refused with code 2. One host gets half of them at most.",
            change="next start",
        ),
    ] = 20_000
    max_topics: Annotated[
        Count,
        key(
            "Topics, and ten times as many pairs of topic and broker name; more are refused with code 2. One host"
            " gets half of them at most.",
            change="next start",
        ),
    ] = 400_000

    # The process
    enable_controller_in_namesrv: Annotated[
        bool,
        key(
            "Runs a controller in this process, with its own keys from the same file and its own ports.",
            set_by="a ControllerCluster with spec.embeddedInNameServer",
            change="next start",
        ),
    ] = False
    log_format: Annotated[LogFormat, key("Format of the log lines.", set_by=OPERATOR, change="next start")] = "console"
    log_level: Annotated[LogLevel, key("Least important level that is logged.", change="at once")] = "info"

    # For Java's files
    cluster_test: Annotated[
        bool, key("true is refused: Java asks another environment's name server.", set_by=OPERATOR, change="next start")
    ] = False
    product_env_name: Annotated[
        str, key("Java uses it with clusterTest.", without_effect=True, change="next start")
    ] = "center"
    rocketmq_home: Annotated[str, HOME] = ""
    un_register_broker_queue_capacity: Annotated[Count, IN_ONE_LOOP] = 3000
    client_request_thread_pool_nums: Annotated[Count, IN_ONE_LOOP] = 8
    default_thread_pool_nums: Annotated[Count, IN_ONE_LOOP] = 16
    client_request_thread_pool_queue_capacity: Annotated[Count, IN_ONE_LOOP] = 50_000
    default_thread_pool_queue_capacity: Annotated[Count, IN_ONE_LOOP] = 10_000
