"""Helpers shared by all subpackages: atomic file writes, lazy imports, messages, random numbers, registries."""
