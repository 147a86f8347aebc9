"""Drop-in interfaces of other metric libraries: scripts change one import and no longer need Java."""
