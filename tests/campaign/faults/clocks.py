"""Wall clocks that jump or are wrong; steady clocks are right."""

from tests.campaign.nemesis import Nemesis


async def clock_jump(nemesis: Nemesis) -> None:
    node = nemesis.server()
    seconds = nemesis.rng.choice((-3600, -30, -5, 5, 30, 3600))
    nemesis.note(f"clock of {node.name} jumps by {seconds:+d} s, and back")
    node.shim.clock(seconds)
    await nemesis.wait(1, 5)
    node.shim.clock(0)


async def clock_skew(nemesis: Nemesis) -> None:
    node = nemesis.server()
    seconds = nemesis.rng.choice((-8, -2, 2, 8))
    nemesis.note(f"clock of {node.name} {seconds:+d} s until the end")
    node.shim.clock(seconds)
