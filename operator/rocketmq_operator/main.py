"""The operator process: settings, leader election, kopf."""
