"""Where pixels come from: picture files, bytes in hand, and clips."""
