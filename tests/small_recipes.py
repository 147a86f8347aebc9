"""Small recipes as text, for several tests."""

from __future__ import annotations

MLE = """
name = "small"
[data]
train = "scenes:plain?n=60"
validation = "scenes:plain?n=30&split=validation"
[captioner.new]
vision = "scenes"
[objective]
kind = "mle"
[training]
steps = 6
learning_rate = 1e-3
[validation]
select = "loss"
"""
