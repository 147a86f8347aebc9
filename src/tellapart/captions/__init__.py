"""Reads and writes captions in files, and records who wrote them and how they changed."""
