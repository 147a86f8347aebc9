"""The interfaces of other libraries over the metrics of this one: scripts change an import and do without Java."""
