"""The readers: one module per data set layout. Each registers its `tellapart.data.reader.Reader`.

A new layout requires one module here and a test. Specifications, error messages and the command-line help use the
registered entry, and ``python tools/data_tables.py`` generates the tables in ``docs/data.md`` from it.
"""
