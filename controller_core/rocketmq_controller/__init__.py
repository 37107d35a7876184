"""The controller: RIP-44's replicated state machine over Raft, spoken to in RocketMQ's remoting protocol."""
