"""Searches a folder of pictures by caption and by content."""
