"""The controller: RIP-44's replicated state machine over Raft, spoken to in RocketMQ's remoting protocol."""

import os

# Read once, when grpc is first imported: below ERROR its core writes a line to stderr for every failed TLS handshake,
# past our log and at any stranger's pleasure.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
