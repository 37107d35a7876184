"""`python -m rocketmq_demo.agent`: one light broker agent until SIGTERM.

Exit codes: 0 ended by a signal, 1 an identity could not be kept or a bug, 2 wrong arguments or an unusable start.
"""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import uvloop

from rocketmq_demo.agent.settings import AgentSettings
from rocketmq_demo.agent.shell import Agent
from rocketmq_formats.errors import FormatError
from rocketmq_runtime import logs
from rocketmq_runtime.client import parse_address
from rocketmq_runtime.filesystem import StorageError


def main() -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m rocketmq_demo.agent", description="A light broker agent: no log.")
    parser.add_argument("--folder", type=Path, required=True, help="where the identity is kept")
    parser.add_argument("--address", required=True, metavar="HOST:PORT", help="where to listen")
    parser.add_argument("--controllers", required=True, metavar="HOST:PORT;...", help="all controllers")
    parser.add_argument("--cluster", default="DefaultCluster")
    parser.add_argument("--name", default="broker-a", help="name of the broker group")
    options = parser.parse_args()
    controllers = tuple(filter(None, options.controllers.split(";")))
    try:
        for address in (options.address, *controllers):
            parse_address(address)
    except ValueError as error:
        parser.error(str(error))
    settings = AgentSettings(
        cluster_name=options.cluster, broker_name=options.name, address=options.address, controllers=controllers
    )
    logs.configure("json", "info")
    try:
        uvloop.run(_run(settings, options.folder))
    except (StorageError, FormatError, OSError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    return 0


async def _run(settings: AgentSettings, folder: Path) -> None:
    agent = Agent(settings, folder)
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, agent.stop)
    await agent.run()


if __name__ == "__main__":
    sys.exit(main())
