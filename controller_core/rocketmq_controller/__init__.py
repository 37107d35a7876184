"""The controller: RIP-44's replicated state machine over Raft, spoken to in RocketMQ's remoting protocol."""

import os

# Read once, when grpc is first imported: its core writes lines to stderr for failed TLS handshakes and ports in use,
# past our log, no JSON, and the former at any stranger's pleasure. What matters reaches us as an exception as well.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
