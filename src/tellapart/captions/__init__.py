"""The captions of pictures in files, and which of them tellapart wrote; `inference`, `jobs` and `cli` import it."""
