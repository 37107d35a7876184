"""RocketMQ's remoting protocol: codes, commands, typed headers and bodies, and a sans-IO connection."""
