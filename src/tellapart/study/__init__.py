"""Studies with people: pick a picture by its caption, rate captions, compare captions."""
