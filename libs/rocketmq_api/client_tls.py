"""The files of mutual TLS, for callers of our gRPC services; without gRPC, so that a command can hold them before it
connects, or without ever doing so."""

import msgspec


class ClientTls(msgspec.Struct, frozen=True, kw_only=True):
    """Files (PEM) for mutual TLS; read when a channel is opened."""

    cert_file: str
    key_file: str
    """Without a passphrase."""
    ca_file: str
    """The authority of the servers' certificates."""
    server_name: str = ""
    """Name in the server's certificate, if it is not the host of the address (port-forward); empty: the host."""
