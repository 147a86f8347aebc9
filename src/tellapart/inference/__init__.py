"""Captions for any number of pictures: `caption` runs the job, `engine` reads, encodes and captions."""
