"""Helpers for every folder: atomic files, lazy imports, messages on stderr, random numbers, registries."""
