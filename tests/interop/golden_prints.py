"""The recorded output of mqadmin with Java controllers (tests/golden/mqadmin), made comparable with its output in our
lab.

Only parts that cannot be equal are replaced: addresses, epochs, offsets of the log, which controller leads, and the
order of replicas and brokers, which comes from Java's hash tables."""

import re
from collections.abc import Mapping

from rocketmq_demo.ports import HOST
from tests.golden.lab import BROKERS, CONTROLLERS, NAMESERVER
from tests.paths import GOLDEN_FILES

_FOLDER = GOLDEN_FILES / "mqadmin"
_NUMBERS = re.compile(r"(Epoch\t|[eE]poch=|Offset=)\d+")
_LEADER = re.compile(r"(#ControllerLeaderId\t|#ControllerLeaderAddress\t).*")
_BLOCK = "\n\n"


def golden(name: str) -> str:
    """The recorded output, as it is."""
    return (_FOLDER / name).read_text()


def golden_names() -> dict[str, str]:
    """The recording's addresses, and what each was."""
    ports = {NAMESERVER: "name server"} | {port: member for member, port in CONTROLLERS.items()}
    ports |= {port: f"broker {number}" for number, port in BROKERS.items()}
    return {f"{HOST}:{port}": f"<{name}>" for port, name in ports.items()}


def comparable(text: str, names: Mapping[str, str]) -> str:
    """`text` with symbols for what differs from run to run; `names` says the owner of each address."""
    for address, name in names.items():
        text = re.sub(re.escape(address) + r"(?!\d)", name, text)
    text = _LEADER.sub(r"\1<leader>", _NUMBERS.sub(r"\1<n>", text))
    head, *blocks = text.split(_BLOCK)
    if head.startswith("\n#clusterName"):  # a list of brokers without a head
        return _BLOCK.join(sorted(block.strip("\n") for block in [head, *blocks]))
    return _BLOCK.join([head, *sorted(block.strip("\n") for block in blocks)])


def configurations(text: str) -> dict[str, dict[str, str]]:
    """The keys and values that getControllerConfig lists, by address; the layout of each line is checked."""
    found: dict[str, dict[str, str]] = {}
    address = ""
    for line in text.splitlines():
        head = re.fullmatch(r"={12}(.+?)={12}", line)
        if head:
            address = head[1]
            found[address] = {}
            continue
        key, separator, value = line.partition("=  ")
        assert separator, line
        assert len(key) == 50, line
        found[address][key.rstrip()] = value
    return found
