"""The readers: one module per data set layout, each of which registers its `tellapart.data.reader.Reader`.

A new layout requires one module here and a test; the specification, its errors, the command-line help and the tables
in ``docs/data.md`` use the registered entry.
"""
