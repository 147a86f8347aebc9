"""Local web page for reviewing a folder and its captions."""
