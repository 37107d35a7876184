"""The answer to a request code that a server does not serve: Java's words, and what is missing where that is a feature.

Used by all three servers. docs/compatibility.md lists every code.
"""

from collections.abc import Mapping
from typing import Final

from rocketmq_formats.codes import RequestCode

_POP: Final = "there are no POP consumers here, use push or pull consumers"
_TRANSACTIONS: Final = "there are no transactions here"
_USERS: Final = "there are no users and ACLs here"
_TIMERS: Final = "there are no delays of any length here that could be recalled, use delay levels"
_MISSING: Final[Mapping[int, str]] = {
    **dict.fromkeys((RequestCode.END_TRANSACTION, RequestCode.RESUME_CHECK_HALF_MESSAGE), _TRANSACTIONS),
    **dict.fromkeys((RequestCode.QUERY_ASSIGNMENT, RequestCode.SET_MESSAGE_REQUEST_MODE), _POP),
    **dict.fromkeys((code for code in RequestCode if 200_050 <= code <= 200_151), _POP),
    **dict.fromkeys((code for code in RequestCode if 3001 <= code <= 3010), _USERS),
    # of clients and tools before 5.3: ACL configuration, global white list, its version
    **dict.fromkeys(range(50, 55), _USERS),
    RequestCode.RECALL_MESSAGE: _TIMERS,
}


def not_supported(code: int) -> str:
    """The remark of REQUEST_CODE_NOT_SUPPORTED."""
    remark = f" request type {code} not supported"
    return f"{remark}: {_MISSING[code]}" if code in _MISSING else remark
