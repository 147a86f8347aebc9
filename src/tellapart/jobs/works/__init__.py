"""The kinds of work that jobs do, one module each; `tellapart.jobs.works.table` lists them.

A kind of work consists of a class that turns a shard's items into a file, and a function that merges all shards' files
in the order of the data, so that the bytes do not depend on which worker wrote what.
"""
