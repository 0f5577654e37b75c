"""The engine's client: it knows frames, sockets and the engine's program, and nothing of Waf."""
