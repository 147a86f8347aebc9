"""The readers: one module per data set layout, each of which registers its `tellapart.data.reader.Reader`.

A new layout requires one module here and a test; the specification, its errors and the command-line help use the
registered entry, and ``python tools/data_tables.py`` writes the tables in ``docs/data.md`` from it.
"""
