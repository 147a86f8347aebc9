"""Searches a folder by its captions and its pictures."""
