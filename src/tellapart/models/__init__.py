"""Describes what captioners and scorers share: names to folders, decoding settings, tokenizers, the small vision
tower.
"""
