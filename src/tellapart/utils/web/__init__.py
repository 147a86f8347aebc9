"""The shared parts of the pages that this package serves: server, security, style, pictures."""
