"""The folder in which the documented commands run: photos with captions, caption files, clips, tiny models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tellapart.scenes import Scene, Scenes
from tellapart.scenes.vocabulary import SHAPES

PHOTOS = 48


def make_workspace(folder: Path, captioner: Path, scorer: Path) -> None:
    """Write what a documented command may name. Models are links, so that a copy of the folder stays small."""
    scenes = list(Scenes(PHOTOS, split="test", seed=3))
    (folder / "photos").mkdir(parents=True)
    for i in range(PHOTOS):
        write_photo(folder / "photos" / f"{i:03}.jpg", scenes[i])
    (folder / "clip-features").mkdir()
    np.save(folder / "clip-features" / "0001.npy", np.random.default_rng(0).standard_normal((60, 16), dtype=np.float32))
    (folder / "more-photos").mkdir()
    for i, scene in enumerate(Scenes(20, split="test", seed=5)):
        write_photo(folder / "more-photos" / f"more-{i:03}.jpg", scene)
    write_captions(folder, scenes)
    properties = {"caption": {"type": "string"}, "objects": {"type": "array"}, "people": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    (folder / "schema.json").write_text(json.dumps(schema))
    write_coco(folder, scenes)
    write_clips(folder / "clips")
    (folder / "models").mkdir()
    (folder / "models" / "captioner").symlink_to(captioner)
    (folder / "models" / "scorer").symlink_to(scorer)
    save_tokenizer(folder / "models" / "words", [text for scene in scenes for text in scene.references])


def save_tokenizer(folder: Path, texts: list[str]) -> None:
    """A BERT tokenizer that knows the words of these texts."""
    from transformers import BertTokenizer

    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({word for text in texts for word in text.split()})]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)


def write_photo(path: Path, scene: Scene) -> None:
    """A photo in 3:2 with its captions beside it."""
    scene.image().resize((96, 64)).save(path, quality=90)
    path.with_suffix(".txt").write_text("\n".join(scene.references) + "\n")


def write_captions(folder: Path, scenes: list[Scene]) -> None:
    """Two systems' captions and the references, as JSON lines and as text."""
    names = [f"{i:03}.jpg" for i in range(len(scenes))]
    texts = {
        "before": [scene.references[0] for scene in scenes],
        "after": [scene.description for scene in scenes],
        "captions": [scene.references[1] for scene in scenes],
    }
    for stem, captions in texts.items():
        lines = [{"image": name, "caption": text} for name, text in zip(names, captions, strict=True)]
        (folder / f"{stem}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (folder / f"{stem}.txt").write_text("\n".join(captions) + "\n")
    rows = [{"image": name, "captions": scene.references} for name, scene in zip(names, scenes, strict=True)]
    (folder / "references.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_judgements(folder, names, scenes)


def write_judgements(folder: Path, names: list[str], scenes: list[Scene]) -> None:
    """Experts' ratings and references as Flickr8k has them, and objects with synonyms as CHAIR has them."""
    tokens = [
        f"{n}#{k}\t{text}\n" for n, scene in zip(names, scenes, strict=True) for k, text in enumerate(scene.references)
    ]
    (folder / "Flickr8k.token.txt").write_text("".join(tokens))
    rows = [f"{n}\t{names[i - k]}#0\t1\t{1 + k}\t{1 + (i + k) % 4}\n" for i, n in enumerate(names) for k in (1, 2)]
    (folder / "ExpertAnnotations.txt").write_text("".join(rows))
    (folder / "synonyms.txt").write_text("\n".join(", ".join(words) for words in SHAPES.values()) + "\n")


def write_coco(folder: Path, scenes: list[Scene]) -> None:
    """MSCOCO's layout: annotations, and the pictures in val2017."""
    (folder / "coco" / "annotations").mkdir(parents=True)
    (folder / "coco" / "val2017").symlink_to(folder / "photos")
    captions = [(i, text) for i, scene in enumerate(scenes) for text in scene.references]
    document = {
        "images": [{"id": i, "file_name": f"{i:03}.jpg"} for i in range(len(scenes))],
        "annotations": [{"id": n, "image_id": i, "caption": text} for n, (i, text) in enumerate(captions)],
    }
    (folder / "coco" / "annotations" / "captions_val2017.json").write_text(json.dumps(document))


def write_clips(folder: Path) -> None:
    """Clips as GIFs, each with a caption beside it."""
    folder.mkdir()
    for i, scene in enumerate(Scenes(12, split="test", seed=4, frames=8)):
        first, *others = scene.frames(8)
        first.save(folder / f"{i}.gif", save_all=True, append_images=others, duration=100)
        (folder / f"{i}.txt").write_text(scene.references[0] + "\n")
