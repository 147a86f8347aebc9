"""Evaluation: computes metrics of captions with intervals, paired differences and signatures.

`evaluate` runs one evaluation. Its inputs and their cached results are in `context`; the metrics that need more than
texts are in `metrics`. `retrieval` ranks pictures by their captions, `comparison` compares systems, `facts` verifies
what captions claim, and `judges` queries LLM judges on a server.
"""
