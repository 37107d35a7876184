"""How a Java broker is made to refuse sends, and which of its settings that needs. Pure.

Two settings, both effective at once through updateBrokerConfig (25):

    startAcceptSendRequestTimeStamp   checked first for every send: before that time it is refused (SYSTEM_ERROR)
    brokerPermission                  4 removes the write permission from the routes, so that producers use other
                                      brokers, and refuses messages that consumers send back; ordinary sends pass

A hand-over sets only the first, to a time a few seconds ahead: the refusal ends by itself if the sidecar dies. A fence
sets both, the time to `FOREVER_MS`, which no other tool does: a broker that has it without a fence is released.

Java writes its whole configuration back into its `-c` file at each such change, so the settings survive a restart of
the broker only if that file is writable. So every poll compares the broker's settings with the wanted ones.
Source: rocketmq-all-5.3.3: SendMessageProcessor.java, AdminBrokerProcessor.java, Configuration.java.
"""

from collections.abc import Mapping

START_ACCEPT = "startAcceptSendRequestTimeStamp"
PERMISSION = "brokerPermission"
FOREVER_MS = 253_402_300_799_000
"""9999-12-31T23:59:59Z."""
READ_WRITE = 6
_WRITE = 2


def permission(configuration: Mapping[str, str]) -> int:
    """A broker's brokerPermission; Java's default if it cannot be read."""
    text = configuration.get(PERMISSION, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else READ_WRITE


def changes(*, fenced: bool, refuses_until_ms: int, permission: int, before: int | None) -> Mapping[str, str]:
    """The settings to change in the broker.

    Args:
        fenced: what is wanted.
        refuses_until_ms: the broker's startAcceptSendRequestTimeStamp.
        permission: its brokerPermission.
        before: brokerPermission before the fence; None: not known.
    """
    ours = refuses_until_ms == FOREVER_MS
    if not fenced:
        # Both settings together: without the time, the next poll would not see that there is anything to release.
        return {START_ACCEPT: "0", PERMISSION: str(READ_WRITE if before is None else before)} if ours else {}
    wanted = permission & ~_WRITE
    if ours and permission == wanted:
        return {}
    return {START_ACCEPT: str(FOREVER_MS), PERMISSION: str(wanted)}


def to_remember(*, refuses_until_ms: int, permission: int, before: int | None) -> int | None:
    """The brokerPermission to restore when the fence ends.

    Args:
        refuses_until_ms, permission: the broker's settings, before they are changed.
        before: the saved permission; None: nothing saved.
    """
    if refuses_until_ms == FOREVER_MS:
        return before  # its present permission is the fence's own
    # If a fence was undone by hand only in part, the permission is left over from the fence.
    return permission if before is None or permission & _WRITE else before


def end_refusal(*, fenced: bool) -> Mapping[str, str]:
    """The settings to change at the end of a hand-over, with or without success."""
    return {START_ACCEPT: str(FOREVER_MS if fenced else 0)}
