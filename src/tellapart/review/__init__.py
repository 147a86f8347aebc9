"""One local page for a folder and its captions; `cli` imports it."""
