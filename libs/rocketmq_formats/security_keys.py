"""Keys of a Java configuration file that promise protection which no process here gives.

`rocketmq_runtime.config.settings` refuses a start with one of them, and the operator refuses a resource: a broker that
ignored them would be open although its operators expect the opposite. `aclEnable` is of 4.x; 5.3.3 accepts it and
ignores it.
Source: rocketmq-all-5.3.3: AuthConfig.java, TlsSystemConfig.java, NettyClientConfig.java; RIP-68.
"""

from collections.abc import Mapping
from typing import Final

IGNORE_SECURITY_KEYS: Final = "ignoreSecurityKeys"
"""With true the keys below are taken and do nothing."""

_TRUE: Final = frozenset({"true"})
SECURITY_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "aclEnable": _TRUE,
    "authenticationEnabled": _TRUE,
    "authorizationEnabled": _TRUE,
    "migrateAuthFromV1Enabled": _TRUE,
    "useTLS": _TRUE,
    "tlsEnable": _TRUE,
    "tls.enable": _TRUE,
    "tlsMode": frozenset({"enforcing"}),
    "tlsServerMode": frozenset({"enforcing"}),
    "tls.server.mode": frozenset({"enforcing"}),
    "tlsServerAuthClient": _TRUE,
    "tls.server.authClient": _TRUE,
    "tlsServerNeedClientAuth": frozenset({"require"}),
    "tls.server.need.client.auth": frozenset({"require"}),
    "tlsClientAuthServer": _TRUE,
    "tls.client.authServer": _TRUE,
}
"""Key -> the values that switch a protection on, in lower case. Java reads those with `tls.` as system properties."""


def promised_protection(values: Mapping[str, str]) -> str | None:
    """The first key of `values` (key -> text) that switches on a missing protection; None without one, or if
    `ignoreSecurityKeys` is true."""
    if values.get(IGNORE_SECURITY_KEYS, "").strip().lower() == "true":
        return None
    promised = (key for key, on in SECURITY_KEYS.items() if values.get(key, "").strip().lower() in on)
    return min(promised, default=None)
