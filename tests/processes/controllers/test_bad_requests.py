"""Strangers and broken clients at the remoting port: each gets a clear code or a closed connection, without
effect on others.

If 5.3.3 cannot read a header it logs, continues with null, and answers code 1 with the text of the resulting exception;
here it is code 1 too, with a remark that names the field.
"""

import json
import socket
import struct
from collections.abc import Iterator

import pytest

from rocketmq_demo.calls import call
from rocketmq_demo.controllers import ControllerCluster, ControllerProcess
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame, request
from tests.processes.kit import closed_by_peer, log_lines, logged, make_group, replica_info, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

MAX_CONNECTIONS = 20
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ports: PortPool) -> Iterator[ControllerCluster]:
    folder = tmp_path_factory.mktemp("bad-requests")
    with ControllerCluster(folder, ports=ports, config={"maxConnections": str(MAX_CONNECTIONS)}) as cluster:
        cluster.start()
        cluster.wait_ready(60.0)
        make_group(cluster, "g")
        yield cluster


@pytest.fixture
def leader(cluster: ControllerCluster) -> Iterator[ControllerProcess]:
    """The leader; afterwards the quorum must be as before, and no request may have hit a bug."""
    before = replica_info(cluster, "g")
    pids = [process.pid for process in cluster]
    yield cluster[cluster.wait_leader()]
    assert replica_info(cluster, "g") == before
    assert [process.pid for process in cluster if process.alive] == pids
    for process in cluster:
        bugs = [line for line in log_lines(process) if line["level"] == "critical" or "exception" in line]
        assert not bugs


def connect(process: ControllerProcess) -> socket.socket:
    return socket.create_connection((HOST, process.port), timeout=10)


def frame(header: bytes, body: bytes = b"", *, kind: int = 0, header_length: int | None = None) -> bytes:
    word = kind << 24 | (len(header) if header_length is None else header_length)
    return struct.pack(">iI", 4 + len(header) + len(body), word) + header + body


def asked(
    process: ControllerProcess, code: int, fields: dict[str, str] | None = None, body: bytes = b""
) -> RemotingCommand:
    answer = call(process.address, RemotingCommand(code=code, ext_fields=fields, body=body, opaque=7), timeout=10)
    assert answer.opaque == 7
    return answer


LYING_FRAMES = {
    "negative length": (b"\xff\xff\xff\xff" + bytes(12), "frame length -1"),
    "length below its own header word": (struct.pack(">i", 3) + bytes(12), "frame length 3"),
    "length beyond the bound": (b"\x7f\xff\xff\xff" + bytes(12), "frame length 2147483647"),
    "one byte beyond the bound": (struct.pack(">i", 16 * MEGABYTE + 1) + bytes(12), "frame length 16777217"),
    "header longer than its frame": (frame(b"{}", header_length=3), ""),
    "header of 16 MiB claimed": (frame(b"{}", header_length=0xFFFFFF), ""),
    "unknown serialisation": (frame(b"{}", kind=7), ""),
    "empty header": (frame(b""), ""),
    "header is no JSON": (frame(b"nonsense"), ""),
    "header is not UTF-8": (frame(b'{"code":1005,"remark":"\xff"}'), ""),
    "header is a list": (frame(b"[1,2]"), ""),
    "header nests without end": (frame(b'{"code":' + b"[" * 100_000), ""),
    "code is no int": (frame(b'{"code":"x"}'), ""),
    "code does not fit an int": (frame(b'{"code":99999999999}'), ""),
    "binary header cut off": (frame(b"\x03\xed\x00", kind=1), ""),
    "binary header with lying lengths": (
        frame(struct.pack(">hbhiii", 1005, 0, 479, 1, 0, 0x7FFFFFFF) + bytes(4), kind=1),
        "",
    ),
    "TLS": (bytes.fromhex("160301020001000001fc0303") + bytes(64), "TLS"),
    "HTTP": (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
    "PROXY protocol": (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", "PROXY"),
}


@pytest.mark.parametrize("name", LYING_FRAMES)
def test_a_broken_frame_closes_its_connection_only(leader: ControllerProcess, name: str) -> None:
    data, reason = LYING_FRAMES[name]
    with connect(leader) as bystander, connect(leader) as connection:
        connection.sendall(data)
        assert closed_by_peer(connection) == b""
        mine = "{}:{}".format(*connection.getsockname()) if connection.fileno() < 0 else ""
        wait_until(
            lambda: logged(leader, "frame refused, connection closed", reason=reason, peer=mine),
            "a log line with the reason",
        )
        bystander.sendall(encode_frame(request(RequestCode.CONTROLLER_GET_METADATA_INFO)))
        assert bystander.recv(4096)


def test_half_frames_held_open_bind_little_and_disturb_no_other(leader: ControllerProcess) -> None:
    before = leader.resident_bytes()
    halves = [connect(leader) for _ in range(MAX_CONNECTIONS // 2)]
    for number, half in enumerate(halves):
        half.sendall(struct.pack(">iI", 16 * MEGABYTE, 100) + b"{" * number)  # each claims 16 MiB
    for code in range(20):
        assert asked(leader, 200_000 + code).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert leader.resident_bytes() - before < 8 * MEGABYTE
    for half in halves:
        half.close()


@pytest.mark.parametrize("code", [0, -1, 103, 1007, 1008, 1014, 99_999, 2**31 - 1])
def test_an_unknown_code_is_answered_in_java_words(leader: ControllerProcess, code: int) -> None:
    answer = asked(leader, code, {"brokerName": "g"})
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == f" request type {code} not supported"


def test_an_unexpected_response_and_a_oneway_of_unknown_code_are_not_answered(leader: ControllerProcess) -> None:
    with connect(leader) as connection:
        for flag in (1, 2, 3):
            connection.sendall(encode_frame(RemotingCommand(code=99_999, flag=flag, opaque=flag)))
        connection.sendall(encode_frame(request(99_998, opaque=9)))
        answer = connection.recv(65_536)
        assert answer.count(b"not supported") == 1
        assert b"99998" in answer


ALTER = {"brokerName": "g", "masterBrokerId": "1", "masterEpoch": "1"}
APPLY = {"clusterName": "C", "brokerName": "g", "appliedBrokerId": "9", "registerCheckCode": "127.0.0.1:1;x"}
SET_BODY = b'{"syncStateSet":[1],"syncStateSetEpoch":1}'


@pytest.mark.parametrize(
    ("code", "fields", "body", "named"),
    [
        (1001, None, SET_BODY, "brokerName"),
        (1001, {**ALTER, "masterEpoch": "one"}, SET_BODY, "masterEpoch"),
        (1001, {**ALTER, "masterEpoch": "1.5"}, SET_BODY, "masterEpoch"),
        (1001, {**ALTER, "masterEpoch": ""}, SET_BODY, "masterEpoch"),
        (1001, {**ALTER, "masterEpoch": "2147483648"}, SET_BODY, "masterEpoch"),
        (1001, {**ALTER, "masterBrokerId": "9223372036854775808"}, SET_BODY, "masterBrokerId"),
        (1001, {"brokerName": "g", "masterEpoch": "1"}, SET_BODY, "masterBrokerId"),
        (1001, ALTER, b"", "body"),
        (1001, ALTER, b"{", ""),
        (1001, ALTER, b"[" * 200_000, ""),
        (1001, ALTER, b'{"syncStateSet":["a"],"syncStateSetEpoch":1}', "syncStateSet"),
        (1001, ALTER, b'{"syncStateSet":[1],"syncStateSetEpoch":99999999999}', "syncStateSetEpoch"),
        (1002, {"clusterName": "C"}, b"", "brokerName"),
        (1002, {"brokerName": "g", "brokerId": "x"}, b"", "brokerId"),
        (1003, {"clusterName": "C", "brokerName": "g", "brokerId": "x"}, b"", "brokerId"),
        (1004, {}, b"", "brokerName"),
        (1006, None, b'{"a":1}', ""),
        (1006, None, b"[[1]]", ""),
        (1011, {"clusterName": "C"}, b"", "brokerName"),
        (1012, {"brokerName": "g"}, b"", "clusterName"),
        (1013, {**APPLY, "appliedBrokerId": "zwölf"}, b"", "appliedBrokerId"),
        (1013, {**APPLY, "registerCheckCode": ""}, b"", "registerCheckCode"),
        (904, {"clusterName": "C", "brokerName": "g", "brokerAddr": "a:1", "brokerId": "x"}, b"", "brokerId"),
        (1009, None, b"brokerSuspectTimeoutMs=\\uZZZZ", ""),
    ],
)
def test_a_missing_or_senseless_field_is_code_1_and_named(
    leader: ControllerProcess, code: int, fields: dict[str, str] | None, body: bytes, named: str
) -> None:
    answer = asked(leader, code, fields, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert named in answer.remark
    assert len(answer.remark) < 1000


def test_a_registration_of_before_5_1_1_is_told_what_to_do(leader: ControllerProcess) -> None:
    answer = asked(leader, 1003, {"clusterName": "C", "brokerName": "g", "brokerAddress": "a:1"})
    assert answer.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert "without brokerId" in (answer.remark or "")
    assert "upgrade the broker to 5.1.1 or later" in (answer.remark or "")


@pytest.mark.parametrize(
    "text",
    [
        "brokerSuspectTimeoutMs=soon",
        "logLevel=loud",
        "raftElectionTimeoutMs=300",
        "controllerDLegerSelfId=n9",
        "controllerRaftSecretFile=/etc/hostname",
        "controllerStorePath=/nowhere",
    ],
)
def test_a_config_update_that_the_next_start_would_regret_changes_nothing(leader: ControllerProcess, text: str) -> None:
    before = asked(leader, 1010).body
    answer = asked(leader, 1009, None, f"scanInactiveMasterInterval=1234\n{text}".encode())
    machine = text.startswith(("raft", "controller"))
    assert answer.code == (ResponseCode.NO_PERMISSION if machine else ResponseCode.CONTROLLER_INVALID_REQUEST)
    assert text.partition("=")[0] in (answer.remark or "")
    assert asked(leader, 1010).body == before


@pytest.mark.parametrize(
    ("code", "fields", "field"),
    [
        (1012, {"clusterName": "C", "brokerName": "a#b"}, "brokerName"),
        (1012, {"clusterName": "C#", "brokerName": "b"}, "clusterName"),
        (1013, {**APPLY, "brokerName": "#"}, "brokerName"),
        (1013, {**APPLY, "registerCheckCode": "127.0.0.1:1;#"}, "registerCheckCode"),
        (1003, {"clusterName": "C", "brokerName": "g", "brokerId": "1", "brokerAddress": "a#:1"}, "brokerAddress"),
    ],
)
def test_a_name_that_would_break_identity_files_is_refused(
    leader: ControllerProcess, code: int, fields: dict[str, str], field: str
) -> None:
    answer = asked(leader, code, fields)
    assert answer.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert f"{field} must not contain #" in (answer.remark or "")


@pytest.mark.parametrize("code", [1001, 1002, 1003, 1004, 1011, 1012, 1013, 904])
def test_a_name_of_10_kb_is_refused_without_repeating_it(leader: ControllerProcess, code: int) -> None:
    fields = {
        **ALTER,
        **APPLY,
        "brokerId": "1",
        "brokerAddress": "a:1",
        "brokerAddr": "a:1",
        "brokerName": "x" * 10_000,
    }
    answer = asked(leader, code, fields, SET_BODY)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "brokerName" in (answer.remark or "")
    assert len(answer.remark or "") < 300


def test_many_long_names_asked_for_at_once(leader: ControllerProcess) -> None:
    names = json.dumps(["y" * 10_000] * 50 + ["g"] * 1000).encode()
    answer = asked(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, names)
    assert answer.code == ResponseCode.SUCCESS
    assert list(json.loads(answer.body)["replicasInfoTable"]) == ["g"]
    too_many = asked(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, b"[" + b'"g",' * 200_000 + b'"g"]')
    assert too_many.code == ResponseCode.SYSTEM_ERROR
    assert "a body of 800005 bytes is more than" in (too_many.remark or "")


def test_connections_are_bounded_and_those_that_are_open_go_on(leader: ControllerProcess) -> None:
    question = encode_frame(request(RequestCode.CONTROLLER_GET_METADATA_INFO, opaque=1))
    with connect(leader) as first:
        first.sendall(question)
        assert first.recv(4096)
        before = leader.resident_bytes()
        for _ in range(20):
            opened = [connect(leader) for _ in range(100)]
            for connection in opened[MAX_CONNECTIONS:]:
                closed_by_peer(connection)
            first.sendall(question)
            assert first.recv(4096)
            for connection in opened:
                connection.close()
        assert leader.resident_bytes() - before < 8 * MEGABYTE
    wait_until(lambda: logged(leader, "connection limit reached", limit=str(MAX_CONNECTIONS)), "a log line")
    wait_until(lambda: leader.metadata() is not None, "new connections are taken again")


def test_a_flood_of_requests_on_one_connection_is_answered_in_full(leader: ControllerProcess) -> None:
    frames = b"".join(encode_frame(request(99_999, opaque=number)) for number in range(20_000))
    before = leader.resident_bytes()
    with connect(leader) as connection:
        connection.settimeout(0.2)
        sent, answers = 0, bytearray()
        while sent < len(frames):
            try:
                sent += connection.send(frames[sent : sent + 65_536])
            except TimeoutError:  # it does not read from us while we do not read from it
                answers += connection.recv(1 << 20)
        connection.shutdown(socket.SHUT_WR)
        answers += closed_by_peer(connection)
    assert answers.count(b"not supported") == 20_000
    assert leader.resident_bytes() - before < 32 * MEGABYTE
