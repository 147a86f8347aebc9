"""Captions and candidate sets to recall: which picture of a set does a scorer pick, given the caption?"""
