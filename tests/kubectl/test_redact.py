"""No secret leaves in a bundle, whatever it is called and wherever it stands; what helps is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_kubectl.bundle import redact
from rocketmq_kubectl.bundle.redact import REDACTED

JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEi.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJlc2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("password=hunter2 user=ann", f"password={REDACTED} user=ann"),
        ('{"accessKey":"AK123","topic":"t"}', f'{{"accessKey":"{REDACTED}","topic":"t"}}'),
        ("rocketmq.client.secretKey: s3cr3t", f"rocketmq.client.secretKey: {REDACTED}"),
        ("-Djavax.net.ssl.keyStorePassword=changeit", f"-Djavax.net.ssl.keyStorePassword={REDACTED}"),
        ("Authorization: Bearer abcdefghijkl", f"Authorization: {REDACTED} {REDACTED}"),
        (f"got token {JWT} from somewhere", f"got token {REDACTED} from somewhere"),
        ("https://ann:hunter2@example.org/x", f"https://ann:{REDACTED}@example.org/x"),
        ("key AKIAIOSFODNN7EXAMPLE used", f"key {REDACTED} used"),
        ("password='two words' next", f"password='{REDACTED}' next"),
    ],
)
def test_what_looks_like_a_credential_goes(line: str, shown: str) -> None:
    assert redact.text(line) == shown


@pytest.mark.parametrize(
    "line",
    [
        "controllerRaftSecretFile=/etc/rocketmq-raft/raft.secret",
        "raftSecretName: main-controller-raft",
        "2026-01-01T00:00:00Z info election broker=orders broker_id=2 master_epoch=4",
        "enableAuthorization=true",
        "password=",
        "author=ann",
    ],
)
def test_what_helps_stays(line: str) -> None:
    assert redact.text(line) == line


def test_a_private_key_goes_whole_even_when_its_end_is_cut_off() -> None:
    begin = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabcd"
    assert redact.text(f"before\n{begin}\n-----END RSA PRIVATE KEY-----\nafter") == f"before\n{REDACTED}\nafter"
    assert redact.text(f"before\n{begin}") == f"before\n{REDACTED}"


def test_secrets_keep_their_keys_only() -> None:
    secret = {
        "kind": "Secret",
        "metadata": {
            "name": "main-controller-raft",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"data":{"x":"aHVudGVyMg=="}}'},
        },
        "data": {"raft.secret": "aHVudGVyMg=="},
        "stringData": {"other": "hunter2"},
    }
    shown = redact.resource(secret)
    assert shown["data"] == {"raft.secret": REDACTED}
    assert shown["stringData"] == {"other": REDACTED}
    assert shown["metadata"] == {"name": "main-controller-raft", "annotations": {}}
    assert secret["data"] == {"raft.secret": "aHVudGVyMg=="}, "the given one is not changed"


def test_environment_arguments_and_configuration() -> None:
    pod = {
        "kind": "Pod",
        "spec": {
            "containers": [
                {
                    "env": [
                        {"name": "ROCKETMQ_ACL_SECRET_KEY", "value": "hunter2"},
                        {"name": "POD_NAME", "value": "orders-0"},
                        {"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "pw"}}},
                    ],
                    "args": ["-c", "/etc/x.conf", "--password", "hunter2", "--token=hunter2"],
                }
            ],
            "automountServiceAccountToken": False,
        },
        "data": {"orders-0.conf": "brokerName=orders\naclPassword=hunter2\nminInSyncReplicas=2\n"},
    }
    assert redact.resource(pod) == {
        "kind": "Pod",
        "spec": {
            "containers": [
                {
                    "env": [
                        {"name": "ROCKETMQ_ACL_SECRET_KEY", "value": REDACTED},
                        {"name": "POD_NAME", "value": "orders-0"},
                        {"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "pw"}}},
                    ],
                    "args": ["-c", "/etc/x.conf", "--password", REDACTED, f"--token={REDACTED}"],
                }
            ],
            "automountServiceAccountToken": False,
        },
        "data": {"orders-0.conf": f"brokerName=orders\naclPassword={REDACTED}\nminInSyncReplicas=2\n"},
    }


NAMES = st.sampled_from(["password", "dbPassword", "API_KEY", "x-auth-token", "client.secretKey", "accessKey"])
VALUES = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=6, max_size=40).map(lambda v: f"Zz9{v}")


@given(NAMES, VALUES, st.sampled_from(["{}={}", "{}: {}", '"{}":"{}"', "{} = '{}'", "a=1,{}={},b=2", "?x=1&{}={}&y=2"]))
def test_no_named_value_survives(name: str, value: str, form: str) -> None:
    line = form.format(name, value)
    assert value not in redact.text(f"before {line} after\n{line}")
    assert value not in str(redact.resource({"data": {"x.conf": line}, name: value}))


@given(st.text(max_size=200))
def test_redacting_twice_is_redacting_once(content: str) -> None:
    once = redact.text(content)
    assert redact.text(once) == once
