"""The replay of a pattern over this machine's links."""
