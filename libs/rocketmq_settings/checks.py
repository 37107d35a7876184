"""Checks that several settings classes make, each with the key and the value in its message."""

import ipaddress
import posixpath
import re
from typing import Final

import msgspec

from rocketmq_formats.addresses import of_family, parse_addresses, parse_host
from rocketmq_formats.broker_identity import MAX_NAME_LENGTH, NAME_FORM, NAME_PATTERN
from rocketmq_settings.declare import Settings
from rocketmq_settings.replica import ReplicaKeys, check_fixed_role

_NAME: Final = re.compile(NAME_PATTERN)
_STORABLE_NAME: Final = re.compile("[^#]+")
"""A Java broker keeps it in a file of parts between `#`."""


def check_replica(keys: ReplicaKeys, broker_name: str) -> None:
    """What both halves of a replica check.

    Args:
        broker_name: brokerName, or what stands for it.

    Raises:
        ValueError: a value that cannot work, or that contradicts another.
    """
    _check_names(keys, broker_name)
    check_fixed_role(keys)
    take_bind_hosts(keys, "bindAddress")
    msgspec.structs.force_setattr(keys, "broker_ip1", of_family(keys.broker_ip1, keys.broker_ip_family))
    check_own_host("brokerIP1", keys.broker_ip1)
    check_own_host("brokerIP2", keys.broker_ip2)
    check_addresses("namesrvAddr", keys.namesrv_addr)
    if not keys.beside_java_broker:
        _check_commit_log(keys)


def _check_names(keys: ReplicaKeys, broker_name: str) -> None:
    """Names that every part takes: name servers, tools, other replicas, Kubernetes. Beside an official broker they are
    what that broker takes."""
    legal = _STORABLE_NAME if keys.beside_java_broker else _NAME
    for key, name in (("brokerClusterName", keys.broker_cluster_name), ("brokerName", broker_name)):
        if not legal.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
            form = f"1 to {MAX_NAME_LENGTH} characters without `#`" if keys.beside_java_broker else NAME_FORM
            raise ValueError(f"{key}={name[:200]!r} is no usable name: {form}")


def _check_commit_log(keys: ReplicaKeys) -> None:
    text, root = keys.store_path_commit_log, keys.store_path_root_dir
    if "," in text:
        # Java's list of folders: as one it would be new and empty
        raise ValueError(f"storePathCommitLog={text[:200]}: the log has one folder")
    taken = {posixpath.normpath(f"{root}/{folder}") for folder in ("", "config", "consumequeue")}
    if text and posixpath.normpath(text) in taken:
        # the log's next start would find files of others, and refuse
        raise ValueError(f"storePathCommitLog={text[:200]} has other files of the store: the log needs its own folder")


def check_addresses(key: str, text: str) -> None:
    """A list of addresses, which may be empty.

    Raises:
        ValueError: as `parse_addresses`.
    """
    try:
        parse_addresses(text)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def check_own_host(key: str, text: str) -> None:
    """A host that others get to know; may be empty.

    Raises:
        ValueError: others cannot connect to it.
    """
    if not text:
        return
    try:
        host = parse_host(text)
    except ValueError as error:
        raise ValueError(f"{key}: {error}; the port has its own key") from error
    if is_any(host):
        raise ValueError(f"{key}={text}: others cannot connect to it; name an address of this host")


def take_bind_hosts(settings: Settings, *keys: str) -> None:
    """Hosts whose ports are opened, empty ones too. An IPv6 address may have brackets; from here on it has none.

    For `__post_init__`, before anything reads them.

    Raises:
        ValueError: neither an IP address nor the name of a host.
    """
    names = dict(zip(settings.__struct_encode_fields__, settings.__struct_fields__, strict=True))
    for key in keys:
        name = names[key]
        text: str = getattr(settings, name)
        if not text:
            continue
        try:
            msgspec.structs.force_setattr(settings, name, parse_host(text))
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error


def is_any(host: str) -> bool:
    """Whether it stands for all addresses of a host: 0.0.0.0 or ::."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
