"""Caption metrics as the COCO tools compute them, without Java and without a model."""

from tellapart.metrics import bleu, cider_d, rouge_l

captions = ["a red dog lies on the grass", "a man rides a brown horse"]
references = [
    ["a red dog lies on green grass", "the dog is on the grass"],
    ["a man on a horse", "someone rides a brown horse"],
]
for metric in (bleu, rouge_l, cider_d):  # each gives the corpus' value and one value per caption
    corpus, per_caption = metric(captions, references)
    print(f"{metric.__name__:8} {corpus:.4f}  {per_caption.round(4).tolist()}")
