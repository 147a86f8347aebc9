"""A copy of Flickr8k with damage of many kinds, each on pictures of its own; which ones is returned."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from PIL import Image

GERMAN = (
    "Ein Hund läuft über die Wiese und trägt einen Ball.", "Zwei Männer sitzen auf einer Bank vor dem Haus.",
    "Eine Frau mit einem roten Mantel steht im Regen.", "Der Junge springt von einem Felsen in das Wasser.",
)  # fmt: skip
SPANISH = (
    "Un perro corre por la playa con una pelota en la boca.",
    "Dos hombres están sentados en un banco del parque.",
)
OTHER_SCRIPTS = ("一只狗在草地上奔跑。", "Собака бежит по траве.")
REFUSALS = (
    "I'm sorry, but I can't assist with that.", "I cannot describe the people in this image.",
    "As an AI language model, I am unable to view pictures.", "Unable to process the request: no image was provided.",
)  # fmt: skip
OPENINGS = ("The image shows ", "In this image, ", "This picture depicts ", "Sure! Here is a caption: ")

# The share of pictures that each kind is done to, 1 to 5 per cent.
SHARES = {
    "empty": 0.01, "cut": 0.05, "refusal": 0.02, "loop": 0.01, "template": 0.03, "language": 0.02, "encoding": 0.02,
    "shared": 0.04, "near": 0.03, "leaked": 0.03, "neighbour": 0.02, "unreadable": 0.01, "rotated": 0.01, "cmyk": 0.01,
    "16-bit": 0.01, "suffix": 0.01, "blank": 0.01,
}  # fmt: skip


def cut(text: str, draw: random.Random) -> str:
    """What is left where the number of tokens was bounded."""
    words = text.rstrip(" .").split()
    return " ".join(words[: max(3, int(len(words) * draw.uniform(0.3, 0.8)))])


def looped(text: str, draw: random.Random) -> str:
    words = text.rstrip(" .").split()
    size = draw.randint(1, 5)
    return " ".join([*words, *(words[-size:] * draw.randint(3, 8))])


def wrongly_decoded(text: str, draw: random.Random) -> str:
    """UTF-8 read as cp1252, an entity, an escape, or a replacement character."""
    words = text.split()
    place = draw.randrange(len(words))
    words[place] += draw.choice(["â€™s", "Ã©", "&quot;", "\\u00e9", "\ufffd", "<pad>"])
    return " ".join(words)


def one_word_changed(text: str, draw: random.Random) -> str:
    words = text.split()
    words[draw.randrange(len(words) - 1)] = draw.choice(["purple", "wooden", "seven", "unusual"])
    return " ".join(words)


def truncated(source: Path, target: Path) -> None:
    data = source.read_bytes()
    target.write_bytes(data[: len(data) // 2])


def turned(source: Path, target: Path) -> None:
    with Image.open(source) as image:
        exif = image.getexif()
        exif[0x0112] = 6
        image.save(target, "JPEG", exif=exif)


def saved(mode: str, kind: str) -> Callable[[Path, Path], None]:
    def save(source: Path, target: Path) -> None:
        with Image.open(source) as image:
            image.convert(mode).save(target, kind)

    return save


def sixteen_bits(source: Path, target: Path) -> None:
    import numpy as np

    with Image.open(source) as image:
        Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257).save(target, "TIFF")


def blank(source: Path, target: Path) -> None:
    with Image.open(source) as image:
        colour = image.convert("RGB").getpixel((0, 0))
        Image.new("RGB", image.size, colour).save(target, "JPEG", comment=source.name)


PICTURES: dict[str, Callable[[Path, Path], None]] = {
    "unreadable": truncated, "rotated": turned, "cmyk": saved("CMYK", "JPEG"), "16-bit": sixteen_bits,
    "suffix": saved("RGB", "PNG"), "blank": blank,
}  # fmt: skip


def read_flickr8k(source: Path) -> dict[str, list[str]]:
    """The captions of every picture that is there."""
    texts: dict[str, list[str]] = {}
    for line in (source / "Flickr8k.token.txt").read_text("utf-8").splitlines():
        key, text = line.split("\t")
        texts.setdefault(key.partition("#")[0], []).append(text)
    there = {path.name for path in (source / "images").iterdir()}
    return {name: own for name, own in texts.items() if name in there and len(own) == 5}


def make(source: Path, out: Path, shares: dict[str, float], seed: int) -> dict[str, set[str]]:
    """Writes ``captions.jsonl``, ``references.jsonl`` and ``pictures/`` and returns the ids with each kind of damage.

    The first human caption of each picture is its caption, the others are the references.
    """
    draw = random.Random(seed)
    texts = read_flickr8k(source)
    names = list(texts)
    captions = {name: own[0] for name, own in texts.items()}
    whole = set(names[::3])  # stay as they are: what captions are copied from
    left = [name for name in names if name not in whole and len(captions[name].split()) > 9]
    draw.shuffle(left)
    sources = draw.sample(sorted(name for name in whole if len(captions[name].split()) > 9), len(whole) // 2)
    done: dict[str, set[str]] = {}
    pictures: dict[str, Callable[[Path, Path], None]] = {}
    before = dict(zip(names[1:], names, strict=False))
    for kind, share in shares.items():
        fit = [name for name in left if kind != "neighbour" or before.get(name) in whole]
        own = fit[: int(share * len(names))]
        left = [name for name in left if name not in set(own)]
        done[kind] = set(own)
        for name in own:
            if kind in PICTURES:
                pictures[name] = PICTURES[kind]
                continue
            text = captions[name]
            captions[name] = {
                "empty": lambda text=text: draw.choice(["", " ", "."]),
                "cut": lambda text=text: cut(text, draw),
                "refusal": lambda name=name: draw.choice(REFUSALS) + f" ({name})",
                "loop": lambda text=text: looped(text, draw),
                "template": lambda text=text: draw.choice(OPENINGS) + text[0].lower() + text[1:],
                "language": lambda name=name: draw.choice([*GERMAN, *SPANISH, *OTHER_SCRIPTS]) + f" {name}",
                "encoding": lambda text=text: wrongly_decoded(text, draw),
                "shared": lambda: captions[sources.pop()],
                "near": lambda: one_word_changed(captions[sources.pop()], draw),
                "leaked": lambda name=name: texts[name][draw.randint(1, 4)],
                "neighbour": lambda name=name: captions[before[name]].rstrip(" .") + " now .",
            }[kind]()
    (out / "pictures").mkdir(parents=True)
    for name in names:
        target = out / "pictures" / name
        if name in pictures:
            pictures[name](source / "images" / name, target)
        else:
            target.symlink_to(source / "images" / name)
    _write(out / "captions.jsonl", [{"image": name, "caption": captions[name]} for name in names])
    _write(out / "references.jsonl", [{"image": name, "captions": texts[name][1:]} for name in names])
    return done


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
