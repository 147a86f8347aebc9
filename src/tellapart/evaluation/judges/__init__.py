"""Judges behind a server: questions about captions, asked of a model, with every answer kept in a ledger."""
