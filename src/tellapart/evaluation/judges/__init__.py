"""LLM judges: models that answer questions about captions. A ledger stores every answer."""
