"""Captions that tell pictures apart, without training: of ten samples the one by which a scorer finds the picture."""

import sys
from pathlib import Path

from tellapart.captioners import load_captioner
from tellapart.data import open_data
from tellapart.inference.caption import caption_pictures
from tellapart.models.decoding import Decoding
from tellapart.scorers import load_scorer

out = Path(sys.argv[1] if len(sys.argv) > 1 else "captions.jsonl")
captioner, scorer = load_captioner("scenes"), load_scorer("scenes")  # or names of the hub
pictures = open_data("scenes:plain?n=20&split=test")  # or the path of a folder
sampling = Decoding(kind="sample", temperature=1.0, max_tokens=20)
done = caption_pictures(captioner, pictures, out, decoding=sampling, best_of=10, scorer=scorer)
print(f"{done.written} captions in {out}")
