"""Takes secrets out of what `report` collects. Rather one word too few in a bundle than one password too many.

Objects: every value of a Secret; environment values, annotations, configuration lines and arguments whose name looks
secret; the copy of the object that kubectl apply keeps in an annotation. Logs and other text: what looks like a
credential by its form or by the name before it. The names stay, so that one can see what was set.
"""

import re
from collections.abc import Mapping
from typing import Final

REDACTED: Final = "<redacted>"

_WORDS: Final = (
    r"pass(?:word|wd|phrase)?|pwd|secret|token|credential|api[-_.]?key|access[-_.]?key|private[-_.]?key|"
    r"auth(?:orization)?|bearer|session[-_.]?id|cookie|signature|aksk|keystore"
)
SECRET_NAME: Final = re.compile(rf"(?:{_WORDS})", re.IGNORECASE)
NOT_SECRET: Final = re.compile(
    r"(?i)(?:file|path|name|names|ref|dir|enabled?|enable|automountServiceAccountToken|serviceAccountToken|"
    r"secretName|raftSecretName|replicationSecretName|grpcTlsSecretName|pullSecrets|imagePullSecrets|expirationSeconds|author)$"
)
"""Names with such a word whose value says where a secret is, not what it is."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_PATTERNS: Final = (
    # PEM blocks, whole
    (re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL), REDACTED),
    # JSON Web Tokens: three base64url parts
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), REDACTED),
    # Authorization: Bearer xyz, Basic xyz
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w+/=.~-]{8,}"), rf"\1 {REDACTED}"),
    # URLs with user and password
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://[^\s/:@]*):[^\s/@]+@"), rf"\1:{REDACTED}@"),
    # well known forms of keys
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), REDACTED),
    (re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,}\b"), REDACTED),
    # name=value, name: value, "name":"value" where the name looks secret
    (
        re.compile(
            rf"(?i)(?P<name>[\"']?[\w.-]*(?:{_WORDS})[\w.-]*[\"']?)(?P<sign>\s*[=:]\s*)"
            r"(?P<value>\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^\s,;&}\]]+)"
        ),
        None,
    ),
)


def text(content: str) -> str:
    """A log, a properties file, metrics: the same lines without what looks like a credential."""
    for pattern, replacement in _PATTERNS:
        content = pattern.sub(_named if replacement is None else replacement, content)
    return content


def _named(match: "re.Match[str]") -> str:
    name = match["name"].strip("\"'")
    if NOT_SECRET.search(name) or match["value"].strip("\"'") in {"", "null", "true", "false", REDACTED}:
        return match[0]
    quote = match["value"][0] if match["value"][0] in "\"'" else ""
    return f"{match['name']}{match['sign']}{quote}{REDACTED}{quote}"


def resource(body: Mapping[str, object]) -> Mapping[str, object]:
    """A Kubernetes object (or any part of one) without secrets; a new one, the given one is not changed."""
    if body.get("kind") == "Secret":
        hidden = {
            key: dict.fromkeys(value, REDACTED) if isinstance(value, Mapping) else REDACTED
            for key, value in body.items()
            if key in {"data", "stringData"}
        }
        body = {**body, **hidden}
        return {key: value if key in hidden else _value(key, value) for key, value in body.items()}
    return {key: _value(key, value) for key, value in body.items()}


def looks_secret(name: str) -> bool:
    """Whether a variable, key or flag of this name holds a secret."""
    return SECRET_NAME.search(name) is not None and NOT_SECRET.search(name) is None


def _value(name: str, value: object) -> object:
    match value:
        case Mapping():
            return _object(name, value)
        case list():
            return _arguments(value) if name in {"args", "command"} else [_value(name, item) for item in value]
        case str():
            return REDACTED if looks_secret(name) else text(value)
    return value


def _object(name: str, value: Mapping[str, object]) -> Mapping[str, object]:
    if name == "annotations":
        return {key: _value(str(key), item) for key, item in value.items() if key != _LAST_APPLIED}
    if looks_secret(str(value.get("name", ""))) and "value" in value:  # of env
        return {**value, "value": REDACTED}
    return resource(value)


def _arguments(words: list[object]) -> list[object]:
    """Also `--password`, `xyz` as two words."""
    hidden: list[object] = []
    follows = False
    for word in words:
        hidden.append(REDACTED if follows else _value("", word))
        follows = isinstance(word, str) and word.startswith("-") and "=" not in word and looks_secret(word)
    return hidden
