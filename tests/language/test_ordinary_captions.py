"""No caption that a person or a published system wrote is taken for a refusal, and openings are cut rarely."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from real_data import DATA

from tellapart.language.stock_phrases import refusal, without_opening


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(part)


def captions() -> list[str]:
    """Some 90,000: Flickr8k, COCO, Flickr30k, ImageCoDe, and systems on COCO."""
    tokens = (DATA / "flickr8k/Flickr8k.token.txt").read_text().split("\n")
    texts = [line.partition("\t")[2] for line in tokens]
    for path in sorted((DATA / "published").glob("*.txt")):
        texts += [text for line in path.read_text().split("\n") for text in line.split("\t")]
    for name in ("annotations/coco_karpathy_test.json", "annotations/imagecode_valid.json", "coco280/captions.json"):
        texts += strings(json.loads((DATA / name).read_text()))
    texts += strings(json.loads((DATA / "published/capenrich_coco.json").read_text()))
    return list(dict.fromkeys(text for text in texts if len(text.split()) > 2))


@pytest.mark.long
@pytest.mark.data
def test_of_real_captions_only_refusals_are_refusals() -> None:
    texts = captions()
    assert len(texts) > 85_000
    refused = {text for text in texts if refusal(text)}
    assert refused == {  # of annotators who saw no picture
        "I am unable to see an image above.",
        "I am unable to see the image above.",
        "There is no image here to provide a caption for.",
        "There is no image to be reviewed on this hit.",
        "There is no image to provide a caption for.",
        "There is no picture here to describe with a caption.",
    }
    cut = [opening for text in texts if (opening := without_opening(text)[1])]
    assert len(cut) < 0.02 * len(texts)
    assert {opening.split()[0].lower() for opening in cut} <= {
        *("there", "a", "an", "the", "this", "that", "it", "in", "we", "you", "one", "picture", "photo", "photograph"),
        *("image", "shows", "scene", "snapshot"),
    }


@pytest.mark.parametrize(
    "text",
    [
        "Ein Mann entschuldigt sich bei einer Frau", "Leidende Menschen auf einem Gemälde", "Kann eine Katze fliegen?",
        "Un homme désolé regarde un train qui part", "Je ne sais quoi, ein Café in Paris", "Les excuses d'un enfant",
        "Un perro siente el viento en la playa", "Una mujer lamenta la derrota", "Perdón, escultura de bronce",
        "Un uomo dispiaciuto guarda il mare", "Scusa il disordine, un cartello in cucina",
        "Uma mulher desculpa-se ao telefone", "Um homem infelizmente molhado",
        "Een man biedt zijn excuses aan", "Helaasheid der dingen, filmposter",
        "Mężczyzna przeprasza kobietę", "Мужчина извиняется перед женщиной", "一只狗对不起地看着主人",
        "申し訳なさそうな犬",
    ],
)  # fmt: skip
def test_captions_with_such_words_inside_are_captions(text: str) -> None:
    assert not refusal(text)
    assert without_opening(text) == (text, "")
