"""Small helpers that any part may use: atomic files, lazy imports, messages on stderr."""
