"""From bytes to handlers and back: listeners, connections, bursts, the request channel."""
