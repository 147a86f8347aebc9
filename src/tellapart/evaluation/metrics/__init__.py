"""Metrics that need pictures, a scorer, a judge or a model; text metrics are in `tellapart.metrics`.

Each module registers its metrics with a decorator of `tellapart.metrics.registry`.
"""
