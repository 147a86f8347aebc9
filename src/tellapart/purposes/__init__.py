"""Turns captions into alt text and into training captions for image generators."""
