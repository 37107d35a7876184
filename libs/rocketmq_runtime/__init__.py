"""What every process needs around its domain: asyncio servers and clients, atomic files, logs, settings."""
