"""Evaluation: computes metrics of captions with intervals, paired differences and signatures.

`evaluate` runs one evaluation, `registry` lists every metric, `slots` defines a metric's input and output, and
`context` its other inputs. `retrieval` and `candidate_sets` rank pictures by their captions, `comparison` compares
systems, `facts` verifies what captions claim, and `judges` queries models behind a server.
"""
