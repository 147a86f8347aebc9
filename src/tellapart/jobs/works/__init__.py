"""The kinds of work that a job does on its shards, a module each; `tellapart.jobs.works.table` lists them.

A kind of work is a class that turns the items of a shard into a file, and a function that joins the files of all shards
in the order of the data, so that their bytes do not depend on who wrote them.
"""
