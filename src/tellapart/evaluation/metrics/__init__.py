"""One module for each kind of metric; each registers its entries in `tellapart.evaluation.registry`.

To add a metric, add a module here: the function, or an import of it from `tellapart.metrics`, and one entry.
"""
