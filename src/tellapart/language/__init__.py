"""Analyzes English captions (content words, phrases, claims) and builds captions from a subset of their words."""
