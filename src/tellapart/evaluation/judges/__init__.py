"""LLM judges: ask a model on a server questions about captions, and store every answer in a ledger."""
