"""Records the keys of 5.3.3's configuration classes: `keys/java_keys.json`, rows of class, key, type and default.

    python -m tests.golden.keys_capture      (from the root; needs a JDK and mvn; takes a minute)

The official classes are asked, from Maven's rocketmq 5.3.3: a key is what `MixAll.properties2Object` would set, a
method `setX` with a parameter; its default is what a new object's getter gives. Defaults that differ between machines
(addresses, names, processors) are null, like those that are null in Java.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from rocketmq_demo.apache import jars

FILE: Final = Path(__file__).parent / "keys" / "java_keys.json"
SOURCE: Final = Path(__file__).parent / "GoldenKeys.java"
CLASSES: Final = (
    "common.BrokerConfig",
    "store.config.MessageStoreConfig",
    "remoting.netty.NettyServerConfig",
    "remoting.netty.NettyClientConfig",
    "common.namesrv.NamesrvConfig",
    "common.ControllerConfig",
    "common.JraftConfig",
    "auth.config.AuthConfig",
)
OF_THE_MACHINE: Final = frozenset({"brokerIP1", "brokerIP2", "brokerName", "jraftConfig"})


def main() -> None:
    first, second = _ask(processors=1), _ask(processors=13)
    for row, other in zip(first, second, strict=True):
        if row != other or row[1] in OF_THE_MACHINE or row[3] == "null":
            row[3] = None
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("[\n" + ",\n".join(map(json.dumps, first)) + "\n]\n")


def _ask(processors: int) -> list[list[str | None]]:
    with tempfile.TemporaryDirectory() as home:
        options = [f"-XX:ActiveProcessorCount={processors}", f"-Duser.home={home}", "-cp", jars.classpath()]
        classes = [f"org.apache.rocketmq.{name}" for name in CLASSES]
        ran = subprocess.run(
            [jars.java(), *options, SOURCE, *classes], cwd=home, text=True, capture_output=True, check=True
        )
        lines = (line.split("\t") for line in ran.stdout.splitlines())
        return [[text.replace(home, "~") for text in words[1:]] for words in lines if words[0] == "key"]


if __name__ == "__main__":
    main()
