"""Analyzes English captions (content words, phrases, claims), and builds captions from a subset of a caption's
words.
"""
