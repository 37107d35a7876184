"""rocketmq-admin: mqadmin's controller commands, spoken over the wire."""
