"""A light broker: everything that RIP-44 asks of a broker towards its controllers, and no log.

Identity, heartbeats, SyncStateSet and roles are real and go over the wire to real controllers. Messages are not kept:
a probe that is answered with success was counted, nothing more.
"""
