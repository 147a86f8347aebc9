"""The scripted backend: its answers, its errors, and what it refuses."""

from __future__ import annotations

import dataclasses

import pytest
from scene_rates import corpus_rates

from tellapart.boost.scripted import Scripted
from tellapart.boost.stages import STAGE_NAMES, stages
from tellapart.boost.types import BackendError, Message, Request
from tellapart.errors import UsageError
from tellapart.scenes import Scene, Scenes
from tellapart.scenes.claims import count_claims
from tellapart.scenes.parser import parse_caption

SCENES = list(Scenes(200, seed=31))


def boosted(scene: Scene, backend: Scripted) -> dict[str, str]:
    answers: dict[str, str] = {}
    for stage in stages(STAGE_NAMES, backend, backend):
        answers[stage.name] = backend.complete(stage.build_request(scene.item(), answers)).text
        assert stage.check(scene.item(), answers, answers[stage.name]) is None
    return answers


def test_without_errors_everything_said_is_true_and_nearly_all_is_said() -> None:
    captions = [boosted(scene, Scripted()) for scene in SCENES]
    rates = {
        name: corpus_rates([count_claims(c[name], s) for c, s in zip(captions, SCENES, strict=True)])
        for name in STAGE_NAMES
    }
    assert rates["describe"]["attribute_precision"] == rates["describe"]["attribute_recall"] == 100
    assert rates["blend"]["attribute_precision"] > 99 and rates["holistic"]["attribute_precision"] > 99
    people = corpus_rates([count_claims(s.references[0], s) for s in SCENES])["attribute_recall"]
    assert people + 15 < rates["blend"]["attribute_recall"] < rates["holistic"]["attribute_recall"] - 30


def test_the_error_rate_is_the_describers() -> None:
    for error in (0.1, 0.4):
        said = [boosted(scene, Scripted(error))["describe"] for scene in SCENES]
        judged = [count_claims(text, scene) for text, scene in zip(said, SCENES, strict=True)]
        wrong = sum(j.hallucinations + j.binding_errors for j in judged)
        open_to_error = sum(j.attributes - len(s.objects) + 1 for j, s in zip(judged, SCENES, strict=True))
        # Of two things that are both wrong, alignment may find one right: a little below the rate.
        assert 0.8 * error < wrong / open_to_error < 1.2 * error


def test_answers_depend_on_seed_picture_and_question_alone() -> None:
    scene = SCENES[0]
    ask = stages(["describe"], None, Scripted(0.5))[0].build_request(scene.item(), {})
    again = stages(["describe"], None, Scripted(0.5))[0].build_retry(scene.item(), {}, "")
    first = Scripted(0.5).complete(ask).text
    assert Scripted(0.5).complete(ask).text == first
    renamed = dataclasses.replace(scene, id="another")
    assert Scripted(0.5).complete(dataclasses.replace(ask, truth=renamed, picture=renamed)).text == first
    assert Scripted(0.5, seed=1).complete(ask).text != first
    assert Scripted(0.5).complete(again).text != first
    assert {Scripted(0.5).name, Scripted(0.5, 1).name, Scripted(0.4).name} == {
        "scripted:v1,error=0.5,seed=0", "scripted:v1,error=0.5,seed=1", "scripted:v1,error=0.4,seed=0",
    }  # fmt: skip


def test_what_it_cannot_answer_is_one_line() -> None:
    def ask(text: str, **more: object) -> Request:
        return Request((Message("user", text),), **more)  # type: ignore[arg-type]

    for request, line in (
        (ask("Describe it.", picture=SCENES[0]), "the scripted describer only supports pictures of scenes"),
        (ask("What is 2 + 2?"), "the scripted backend requires 'Reference caption N:', or"),
        (
            ask("Reference caption 1: A man rides a wave on his surfboard."),
            "the scripted backend only supports captions of scenes, got '",
        ),
    ):
        with pytest.raises(BackendError, match=line.replace("+", ".")) as error:
            Scripted().complete(request)
        assert error.value.fatal and "\n" not in str(error.value)
    with pytest.raises(UsageError, match="must be a probability"):
        Scripted(1.5)


def test_holistic_says_nothing_that_contradicts_people() -> None:
    """With a describer that is always wrong, what people said stays, all of it."""
    for scene in SCENES[:100]:
        answers = boosted(scene, Scripted(1.0))
        assert all(_found(answers["blend"], answers["holistic"])), answers


def _found(blended: str, holistic: str) -> list[bool]:
    """For each mention of the blended caption whether the holistic one has it with all its values."""
    whole = parse_caption(holistic).mentions
    return [
        any(m.shape == (own.shape or m.shape) and own.values.items() <= m.values.items() for m in whole)
        for own in parse_caption(blended).mentions
    ]
