"""The captions of pictures in files, who wrote them, and their history."""
