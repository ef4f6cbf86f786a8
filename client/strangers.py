"""What else than a broker may listen at an address of `bootstrap_servers`, told by its answer to the first request.

Pure. A wrong port, or a listener with another protocol, is met by whoever sets a client up, and the bytes tell which.
"""

from __future__ import annotations

WHAT_DROPS = (
    "as a Kafka, a ZooKeeper or a port with TLS does, and a broker that has too many connections "
    "(connection_creation_rate, max.connections)"
)
"""Who does not understand the first request ends the connection without a word, and so does a broker that lets no more
in."""

_KNOWN = {
    b"\x15\x03": "it speaks TLS, and this client does not: give a plaintext listener",
    b"\x16\x03": "it speaks TLS, and this client does not: give a plaintext listener",
    b"HTTP/": "a web server answers there: give the port of a broker",
    b"SSH-": "an SSH server answers there: give the port of a broker",
}
"""Beginning of an answer → what that means."""

MOST_SHOWN_BYTES = 16


def who_answers(received: bytes) -> str:
    """In words for a person; `received` is the beginning of what came, as far as it was not understood."""
    for beginning, meaning in _KNOWN.items():
        if received.startswith(beginning):
            return meaning
    shown = f" ({received[:MOST_SHOWN_BYTES]!r})" if received else ""
    return f"what answers there is no strandline broker{shown}"
