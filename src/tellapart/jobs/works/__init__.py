"""The kinds of work that jobs do, one per module. `tellapart.jobs.works.table` lists them.

A kind of work consists of a class that turns a shard's items into a file, and a function that merges the files of all
shards. The files are merged in the order of the data, so that the result's bytes do not depend on which worker
processed which shard.
"""
