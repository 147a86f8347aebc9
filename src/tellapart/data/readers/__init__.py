"""The readers: one module for each layout of a data set. A module registers its `tellapart.data.reader.Reader`.

A new layout is one module here and a test; the specification, its errors, the help of the command line and the tables
in ``docs/data.md`` read the entry.
"""
