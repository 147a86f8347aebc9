"""Captions for any number of pictures: `caption` runs the job, `writers` put its lines on disk."""
