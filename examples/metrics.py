"""Caption metrics as the COCO tools compute them, without Java and without a model."""

from tellapart.metrics import bleu, cider_d, rouge_l

captions = ["a red dog lies on the grass", "a man rides a brown horse"]
references = [
    ["a red dog lies on green grass", "the dog is on the grass"],
    ["a man on a horse", "someone rides a brown horse"],
]
for metric in (bleu, rouge_l, cider_d):  # each returns the corpus' score and the score of each caption
    corpus, per_caption = metric(captions, references)
    scores = ", ".join(f"{score:.4f}" for score in per_caption)
    print(f"{metric.__name__:8} {corpus:.4f}  per caption: {scores}")
