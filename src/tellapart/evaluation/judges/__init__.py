"""Judges behind a server: ask a model questions about captions, and store every answer in a ledger."""
