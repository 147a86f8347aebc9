"""Bags of look-alikes, mined from any pictures, for benchmarks and training."""
