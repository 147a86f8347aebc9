"""Bad answers are recognised, and good ones are not."""

from __future__ import annotations

import pytest

from tellapart.boost.answer_checks import foreign, length, trouble
from tellapart.boost.stage_prompts import read_prompt
from tellapart.scenes import Scenes

BLEND, DESCRIBE, HOLISTIC = map(read_prompt, ("blend", "describe", "holistic"))
DOGS = ("A dog runs over the grass.", "A brown dog with a ball in its mouth.", "The dog is playing on a lawn.")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("...", "empty"),
        ("I'm sorry, but I can't assist with that.", "a refusal"),
        ("I’m sorry, I cannot see the picture.", "a refusal"),
        ("As an AI language model, I do not see images.", "a refusal"),
        ("I am unable to view images.", "a refusal"),
        ("Unfortunately the captions contradict each other.", "a refusal"),
        ("Could you please provide the reference captions?", "a refusal"),
        ("No image was provided.", "a refusal"),
        ("No image attached.", "a refusal"),
        ("The image has not been uploaded.", "a refusal"),
        ("A dog runs.\n\nIt has a ball.", "more than one paragraph"),
        ("- a dog\n- a ball", "more than one paragraph"),
        ("Sure! A dog runs over the grass.", "talk about the answer"),
        ("Here is the holistic caption: A dog runs over the grass.", "talk about the answer"),
        ("Caption: a dog runs over the grass.", "talk about the answer"),
        ("Reference caption 4: A dog with a ball.", "an echo of the prompt"),
        ("Create a holistic caption to describe the same image.", "an echo of the prompt"),
        ("A bathroom with a toilet next to a white sink, mirror and toilet roll.", "an echo of the prompt"),
        ("a dog " * 31, "longer than 60 words"),
        ("Ein brauner Hund läuft mit einem Ball über das Gras und ist auf der Wiese.", "in another language"),
        ("Un chien brun avec une balle court sur la pelouse et dans le jardin.", "in another language"),
        ("Коричневая собака бежит по траве с мячом.", "in another language"),
        ("一只棕色的狗叼着球在草地上奔跑。", "in another language"),
    ],
)
def test_each_kind_of_bad_answer(answer: str, reason: str) -> None:
    assert trouble(answer, DOGS, BLEND, DOGS) == reason


@pytest.mark.parametrize(
    "answer",
    [
        "A brown dog with a ball in its mouth runs over the grass.",
        "Here is a dog that runs over the grass.",
        "I see a dog with a ball.",
        "The image shows a dog. It has a ball in its mouth.",
        "The image provided shows a man riding a brown horse.",
        "The image is attached to a wall with a nail.",
        "As an airplane flies over the beach, people watch from the sand.",
        "As an artificial waterfall runs, people watch.",
        "A sorry-looking dog that can't stand still.",
        'A dog beside a sign that says "Zürich Hauptbahnhof, Gleis 4".',
        'A dog before a shop called "Собака".',
        "dog",
    ],
)
def test_good_answers_pass(answer: str) -> None:
    assert trouble(answer, DOGS, BLEND, DOGS) is None


def test_what_a_source_says_is_no_echo_and_no_overlength() -> None:
    bathroom = "A bathroom with a toilet next to a white sink, mirror and toilet roll."
    assert trouble(bathroom, [bathroom], BLEND, [bathroom]) is None
    long = ("a dog beside a ball " * 10).strip()
    assert trouble(f"{long} {long}", [long], BLEND, [long]) == "longer than 60 words"
    assert trouble(f"{long} {long}", [long, long], BLEND, [long, long]) is None


def test_captions_in_another_language_are_answered_in_it() -> None:
    hunde = ("Ein Hund läuft über das Gras.", "Der braune Hund ist auf der Wiese mit einem Ball.")
    assert trouble("Ein brauner Hund mit einem Ball läuft auf der Wiese.", hunde, BLEND, hunde) is None
    english = "A brown dog with a ball in its mouth runs over the grass."
    assert trouble(english, hunde, BLEND, hunde) == "in another language"


def test_without_references_the_prompt_says_which_language() -> None:
    spanish = "Un perro marrón con una pelota en la boca y dos flores."
    assert trouble(spanish, [], DESCRIBE) == "in another language"
    assert trouble("Коричневая собака бежит по траве.", [], DESCRIBE) == "in another language"
    assert trouble("A brown dog runs over the grass.", [], DESCRIBE) is None


def test_little_evidence_is_none() -> None:
    assert not foreign("la la land", "a dog in the park with a ball")
    assert not foreign("Hund", "a dog in the park with a ball")
    assert not foreign("un chien avec la balle et les enfants dans une rue", "dog ball")


def test_scripts_without_blanks_have_a_length() -> None:
    assert length("一只棕色的狗叼着球在草地上奔跑。") == 7
    assert length("a brown dog") == 3


def test_everything_said_about_scenes_is_a_good_answer() -> None:
    """No rule may be so eager that it throws away true captions."""
    for domain in ("plain", "alt"):
        for scene in Scenes(60, domain=domain):
            for text in (*scene.references, scene.description):
                assert trouble(text, [], HOLISTIC, scene.references) is None, text
