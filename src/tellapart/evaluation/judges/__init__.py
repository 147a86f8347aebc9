"""LLM judges: models that answer questions about captions; every answer is stored in a ledger."""
