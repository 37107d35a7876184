"""How a Java broker is kept from taking sends, and which of its settings that needs. Pure.

Two settings, both taken at once by updateBrokerConfig (25):

    startAcceptSendRequestTimeStamp   the first thing a send meets: before that time it is refused (SYSTEM_ERROR)
    brokerPermission                  4 takes the write permission out of the routes, so that producers go elsewhere,
                                      and refuses what consumers send back; ordinary sends it does not refuse

A hand-over needs the first alone, with a time a few seconds ahead: it ends by itself should the sidecar die. A fence
sets both, the time to `FOREVER_MS`, which nobody else does: a broker that shows it without being fenced is let go.

Java writes its whole configuration back into its `-c` file at each such change, so both may survive a restart of the
broker or not, as that file can be written or not. Therefore neither is relied on: what a broker says is compared with
what is wanted at every look.
Source: tag 5.3.3, `SendMessageProcessor.preSend`, `AdminBrokerProcessor.updateBrokerConfig`, `Configuration.persist`.
"""

from collections.abc import Mapping

START_ACCEPT = "startAcceptSendRequestTimeStamp"
PERMISSION = "brokerPermission"
FOREVER_MS = 253_402_300_799_000
"""9999-12-31T23:59:59Z."""
READ_WRITE = 6
_WRITE = 2


def permission(configuration: Mapping[str, str]) -> int:
    """A broker's brokerPermission; Java's default if it says none that can be read."""
    text = configuration.get(PERMISSION, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else READ_WRITE


def changes(*, fenced: bool, refuses_until_ms: int, permission: int, before: int | None) -> Mapping[str, str]:
    """What has to be changed in the broker.

    Args:
        fenced: what is wanted.
        refuses_until_ms: what the broker says of its startAcceptSendRequestTimeStamp.
        permission: what it says of its brokerPermission.
        before: what that was before the fence; None: not known.
    """
    ours = refuses_until_ms == FOREVER_MS
    if not fenced:
        # Let go as a whole: `ours` is what says that there is something to let go of, so it must not go alone.
        return {START_ACCEPT: "0", PERMISSION: str(READ_WRITE if before is None else before)} if ours else {}
    wanted = permission & ~_WRITE
    if ours and permission == wanted:
        return {}
    return {START_ACCEPT: str(FOREVER_MS), PERMISSION: str(wanted)}


def to_remember(*, refuses_until_ms: int, permission: int, before: int | None) -> int | None:
    """The brokerPermission to put back when the fence ends.

    Args:
        refuses_until_ms, permission: what the broker says, before it is changed.
        before: what is remembered; None: nothing.
    """
    if refuses_until_ms == FOREVER_MS:
        return before  # what it says now is the fence's own
    # Of a fence that somebody undid by half the permission is left over, and is nobody's wish.
    return permission if before is None or permission & _WRITE else before


def let_go(*, fenced: bool) -> Mapping[str, str]:
    """The end of a hand-over, however it ended."""
    return {START_ACCEPT: str(FOREVER_MS if fenced else 0)}
