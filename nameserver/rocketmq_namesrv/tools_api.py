"""The requests of tools to a name server: lists, permissions, topics, the KV configuration, the process's own
configuration.

Part of the remoting port: `remoting_api` dispatches to `routes` and turns exceptions into answers.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import BodyError, HeaderError
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import decode_request_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import Header, decode_header
from rocketmq_formats.remoting.nameserver import (
    ORDER_TOPIC_CONFIG,
    AddWritePermResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetBrokerMemberGroupResponseBody,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetTopicsByClusterRequestHeader,
    KVConfigRequestHeader,
    RegisterTopicRequestHeader,
    TopicList,
    TopicRouteData,
    WipeWritePermResponseHeader,
    WritePermRequestHeader,
)
from rocketmq_namesrv.domain import queries
from rocketmq_namesrv.domain.tables import RouteTables
from rocketmq_namesrv.registry import WIPED_BROKERS, Registry
from rocketmq_runtime import background
from rocketmq_runtime.files.filesystem import StorageError
from rocketmq_runtime.remoting import server

log = structlog.get_logger(__name__)

NOT_SET = "not set any response code"
"""What Java leaves in the remark of a 901 although it succeeded."""

Route = Callable[[RemotingCommand, server.Peer], "RemotingCommand | asyncio.Future[RemotingCommand]"]


class ToolsApi:
    """One per process; used in the event loop only."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._tables = registry.tables
        self._answers = registry.answers
        self._kv = registry.kv
        self._config = registry.config
        self.routes: Mapping[int, Route] = {
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._member_group,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._listing(queries.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._listing(queries.unit_sub_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._listing(queries.unit_sub_ununit_topics),
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_kv,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    def _cluster_info(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        return _loose(request, queries.cluster_info(self._tables))

    def _member_group(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        header = decode_header(GetBrokerMemberGroupRequestHeader, request.ext_fields or {})
        group = queries.member_group(self._tables, header.cluster_name, header.broker_name)
        return _loose(request, GetBrokerMemberGroupResponseBody(broker_member_group=group), NOT_SET)

    def _all_topics(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        if not self._config.settings.enable_all_topic_list:
            return response(request, ResponseCode.SYSTEM_ERROR, "disable")
        return _topic_list(request, queries.all_topics(self._tables))

    def _topics_of_cluster(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        if not self._config.settings.enable_topic_list:
            return response(request, ResponseCode.SYSTEM_ERROR, "disable")
        header = decode_header(GetTopicsByClusterRequestHeader, request.ext_fields or {})
        return _topic_list(request, queries.topics_of_cluster(self._tables, header.cluster))

    def _system_topics(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        return _topic_list(request, queries.system_topics(self._tables))

    def _listing(self, query: Callable[[RouteTables], TopicList]) -> Route:
        def listing(request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
            if not self._config.settings.enable_topic_list:
                return response(request, ResponseCode.SYSTEM_ERROR, "disable")
            return _topic_list(request, query(self._tables))

        return listing

    def _wipe_write_permission(self, request: RemotingCommand, peer: server.Peer) -> "asyncio.Future[RemotingCommand]":
        name = decode_header(WritePermRequestHeader, request.ext_fields or {}).broker_name
        count = self._tables.wipe_write_permission(name)
        kept = self._registry.keep_wiped(name, peer)
        if self._registry.may_log_event("write permission wiped"):
            log.info("write permission wiped", broker=name, topics=count, peer=peer.address)
        answer = _success(request, WipeWritePermResponseHeader(wipe_topic_count=count))
        return background.awaited(self._kept(request, peer, kept, answer), "write permission")

    def _add_write_permission(self, request: RemotingCommand, peer: server.Peer) -> "asyncio.Future[RemotingCommand]":
        name = decode_header(WritePermRequestHeader, request.ext_fields or {}).broker_name
        count = self._tables.add_write_permission(name)
        kept = self._registry.keep_wiped(name, peer)
        if self._registry.may_log_event("write permission added"):
            log.info("write permission added", broker=name, topics=count, peer=peer.address)
        answer = _success(request, AddWritePermResponseHeader(add_topic_count=count))
        return background.awaited(self._kept(request, peer, kept, answer), "write permission")

    def _delete_topic(self, request: RemotingCommand, peer: server.Peer) -> RemotingCommand:
        header = decode_header(DeleteTopicFromNamesrvRequestHeader, request.ext_fields or {})
        self._tables.delete_topic(header.topic, header.cluster_name)
        if self._registry.may_log_event("topic deleted"):
            log.info("topic deleted", topic=header.topic, cluster=header.cluster_name, peer=peer.address)
        return response(request, ResponseCode.SUCCESS)

    def _register_topic(self, request: RemotingCommand, peer: server.Peer) -> RemotingCommand:
        topic = decode_header(RegisterTopicRequestHeader, request.ext_fields or {}).topic
        queues = decode_request_body(TopicRouteData, request.body).queue_datas if request.body else ()
        taken = self._tables.register_topic(topic, queues, host=peer.host)
        if self._registry.may_log_event("topic registered by hand"):
            log.info("topic registered by hand", topic=topic, brokers_known=taken, peer=peer.address)
        return response(request, ResponseCode.SUCCESS)

    def _put_kv(
        self, request: RemotingCommand, peer: server.Peer
    ) -> "RemotingCommand | asyncio.Future[RemotingCommand]":
        fields = request.ext_fields or {}
        namespace, key = fields.get("namespace"), fields.get("key")
        if namespace is None or key is None:
            return response(request, ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        value = fields.get("value")
        if value is None:
            raise HeaderError("PutKVConfigRequestHeader: `value` is missing")
        kept = self._kv.put(namespace, key, value, host=peer.host)
        return background.awaited(self._kv_changed(request, peer, kept, namespace, key), "KV configuration")

    def _get_kv(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        header = decode_header(KVConfigRequestHeader, request.ext_fields or {})
        value = self._kv.tables.get(header.namespace, header.key)
        if value is not None:
            return _success(request, GetKVConfigResponseHeader(value=value))
        remark = f"No config item, Namespace: {header.namespace[:1024]} Key: {header.key[:1024]}"
        return response(request, ResponseCode.QUERY_NOT_FOUND, remark, GetKVConfigResponseHeader())

    def _delete_kv(self, request: RemotingCommand, peer: server.Peer) -> "asyncio.Future[RemotingCommand]":
        header = decode_header(KVConfigRequestHeader, request.ext_fields or {})
        kept = self._kv.delete(header.namespace, header.key, host=peer.host)
        return background.awaited(
            self._kv_changed(request, peer, kept, header.namespace, header.key), "KV configuration"
        )

    def _list_kv(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        namespace = decode_header(GetKVListByNamespaceRequestHeader, request.ext_fields or {}).namespace
        body = self._kv.listing(namespace)
        if body is None:
            return response(request, ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace[:1024]}")
        return response(request, ResponseCode.SUCCESS, None, None, body)

    def _update_config(self, request: RemotingCommand, peer: server.Peer) -> "asyncio.Future[RemotingCommand]":
        return background.awaited(self._updated(request, peer.host), "configuration")

    async def _updated(self, request: RemotingCommand, host: str) -> RemotingCommand:
        try:
            answer = await self._config.update(request.body, host=host)
        except BodyError as error:
            return response(request, error.response_code, str(error))
        return response(request, answer.code, answer.remark)

    def _get_config(self, request: RemotingCommand, _peer: server.Peer) -> RemotingCommand:
        return response(request, ResponseCode.SUCCESS, None, None, self._config.as_properties())

    async def _kv_changed(
        self, request: RemotingCommand, peer: server.Peer, kept: "asyncio.Future[None]", namespace: str, key: str
    ) -> RemotingCommand:
        answer = await self._kept(request, peer, kept, response(request, ResponseCode.SUCCESS))
        if answer.code == ResponseCode.SUCCESS:
            if namespace == ORDER_TOPIC_CONFIG:
                self._answers.forget(key)
            elif namespace == WIPED_BROKERS:
                self._registry.wiped_changed(key)
        return answer

    async def _kept(
        self, request: RemotingCommand, peer: server.Peer, kept: "asyncio.Future[None]", answer: RemotingCommand
    ) -> RemotingCommand:
        """`answer`, when the change is on disk."""
        try:
            await kept
        except StorageError as error:
            if self._registry.may_log_refusal(f"{request.code} not kept", peer):
                log.error("request failed: its change could not be kept", code=request.code, reason=str(error))
            return response(request, ResponseCode.SYSTEM_ERROR, str(error))
        return answer


def _success(request: RemotingCommand, header: Header) -> RemotingCommand:
    return response(request, ResponseCode.SUCCESS, None, header)


def _topic_list(request: RemotingCommand, topics: TopicList) -> RemotingCommand:
    return response(request, ResponseCode.SUCCESS, None, None, encode_body(topics))


def _loose(request: RemotingCommand, body: msgspec.Struct, remark: str | None = None) -> RemotingCommand:
    """As fastjson writes it for these requests: bare integer keys. Sets are sent in order."""
    text = fastjson.dumps(msgspec.to_builtins(body, order="sorted"))
    return response(request, ResponseCode.SUCCESS, remark, None, text)
