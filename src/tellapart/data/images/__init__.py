"""Sources of pixels: image files, bytes in memory, and clips."""
