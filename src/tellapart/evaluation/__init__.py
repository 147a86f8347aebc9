"""Evaluation: computes metrics of captions with intervals, paired differences and signatures.

`evaluate` runs one evaluation: `chosen_metrics` selects its metrics, `context` holds their inputs, and `comparison`
compares systems. `metrics` has the metrics that need more than texts, `test_sets` ranks pictures by their captions,
`facts` verifies what captions claim, and `judges` queries models behind a server.
"""
