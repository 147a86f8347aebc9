"""What a server answers and is no caption: cut texts, control tokens, refusals in ten languages, and errors by kind."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from fault_server import FaultServer

from tellapart.boost.backends import open_backend
from tellapart.boost.types import BackendError, Message, Request
from tellapart.check.captions import refusal as checked_refusal
from tellapart.check.captions import rows_of
from tellapart.data import open_data
from tellapart.errors import TellapartError
from tellapart.evaluation.judges.judge import Judge, Question
from tellapart.inference.caption_by_server import ServerSummary, caption_by_server
from tellapart.language.answers import answer_text
from tellapart.language.markdown import without_markdown
from tellapart.language.stock_phrases import refusal
from tellapart.models.decoding import Decoding
from tellapart.purposes.alt_text import alt_texts
from tellapart.purposes.shortening import without_openings

COUNT = 4
FAST = {"base": 0.01, "cap": 0.05}
CAPTION = "A red star on the snow."
ASKED = Request((Message("user", "What is this?"),))


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        running.says = lambda body: CAPTION
        yield running


def caption(server: FaultServer, out: Path, **options: Any) -> ServerSummary:
    settings: dict[str, Any] = {"decoding": Decoding(max_tokens=60), "progress": False, "retry": FAST} | options
    return caption_by_server(f"openai:m@{server.url}", open_data(f"scenes:plain?n={COUNT}"), out, **settings)


def captions_of(path: Path) -> list[str]:
    return [json.loads(line)["caption"] for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("finish", ["error", "content_filter", "MAX_TOKENS", "max_tokens", "tool_calls", "abort"])
def test_a_caption_that_was_not_finished_is_none(server: FaultServer, tmp_path: Path, finish: str) -> None:
    server.finish = finish
    summary = caption(server, tmp_path / "a.jsonl")
    assert (summary.written, len(summary.failed)) == (0, COUNT)
    assert ("truncated after 60 tokens" if "max" in finish.lower() else f"'{finish}'") in next(iter(summary.failed))[1]
    with pytest.raises(TellapartError, match="none of the 4 answers is a usable caption"):
        summary.refuse_unanswered()


@pytest.mark.parametrize("finish", ["stop", "eos", "end_turn", None, "STOP"])
def test_a_caption_that_was_finished_is_one(server: FaultServer, tmp_path: Path, finish: str | None) -> None:
    server.finish = finish
    assert caption(server, tmp_path / "a.jsonl").written == COUNT


def test_boost_and_judges_store_no_half_answers(server: FaultServer, tmp_path: Path, cli: Cli) -> None:
    server.finish, model = "error", f"openai:m@{server.url}"
    done = cli("boost", "scenes:plain?n=2", "-o", tmp_path / "b.jsonl", "--llm", model, "--stages", "blend")
    assert done.status == 1 and "the server stopped with finish reason 'error'" in done.err
    server.says = lambda body: '{"score": 70}'
    judge = Judge(open_backend(model), tmp_path / "j.jsonl", retry=FAST)
    questions = [Question("1", {"candidate": "- a dog", "references": "- a cat"}, str)]
    assert judge.ask("clair", questions) == [None]


@pytest.mark.parametrize(
    "text",
    [
        f"{CAPTION}<|im_end|>",
        f"<s> {CAPTION}</s>",
        f"<answer>{CAPTION}</answer>",
        f"<|begin_of_box|>{CAPTION}<|end_of_box|>",
        f"<think>A dog?</think>\n<answer><|begin_of_box|>{CAPTION}<|end_of_box|></answer>",
        f"<|im_start|>assistant\n{CAPTION}<|im_end|>\n<|im_start|>user\nThanks!",
        f"<|start_header_id|>assistant<|end_header_id|>\n\n{CAPTION}<|eot_id|>",
        f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>{CAPTION}<|return|>",
        f"<reasoning>A dog?</reasoning>{CAPTION}<end_of_turn>",
        f"</s>{CAPTION}<｜end▁of▁sentence｜>",
        f"<caption>{CAPTION}</caption>",
        f"Here it is:\n<Output>\n{CAPTION}\n</Output>",
        f"\\boxed{{{CAPTION}}}",
        f"ASSISTANT: {CAPTION}",
        f"### Response:\n{CAPTION}",
        f"<start_of_image>[BOS] {CAPTION} [EOS]<unused95>",
        "<ref>A red star</ref><box>(12,3),(40,31)</box> on the snow.",
        "<|object_ref_start|>A red star<|object_ref_end|><|box_start|>(12,3),(40,31)<|box_end|> on the snow.",
        "<|ref|>A red star<|/ref|><|det|>[[12, 3, 40, 31]]<|/det|> on the snow.",
        f"<loc0012><loc0300>{CAPTION}",
    ],
)
def test_control_tokens_are_no_words_of_a_caption(text: str) -> None:
    assert answer_text(text) == CAPTION


def test_control_tokens_reach_no_file(server: FaultServer, tmp_path: Path) -> None:
    server.says = lambda body: f"<think>Hm.</think><answer>{CAPTION}</answer><|im_end|>"
    caption(server, tmp_path / "a.jsonl")
    assert captions_of(tmp_path / "a.jsonl") == [CAPTION] * COUNT
    assert answer_text("a sign that reads 1 < 2 | <3 >") == "a sign that reads 1 < 2 | <3 >"
    assert answer_text("<|channel|>analysis<|message|>Hm") is None


REFUSALS = (
    "Es tut mir leid, aber ich kann dieses Bild nicht beschreiben.",
    "Ich kann dieses Bild leider nicht sehen.",
    "Je suis désolé, mais je ne peux pas voir l'image.",
    "Je ne peux pas décrire cette image.",
    "Lo siento, no puedo ver la imagen.",
    "Mi dispiace, ma non posso vedere l'immagine.",
    "Desculpe, não consigo ver a imagem.",
    "Het spijt me, maar ik kan de afbeelding niet zien.",
    "Przepraszam, ale nie mogę opisać tego zdjęcia.",
    "Извините, я не могу описать это изображение.",
    "К сожалению, я не вижу изображения.",
    "抱歉，我无法查看这张图片。",
    "申し訳ありませんが、画像を見ることができません。",
    "I’m sorry, but I can't see it.",
    "It looks like you haven't uploaded an image.",
    "It seems there is no image attached.",
    "Unable to describe the image.",
    "There is no picture here to describe with a caption.",  # a person's, in COCO
    "Es ist mir leider nicht möglich, dieses Bild zu beschreiben.",
    "Je regrette, mais je ne suis pas en mesure de voir l'image.",
    "Me temo que no puedo ver la imagen.",
    "Mi rincresce, ma non posso vedere l'immagine.",
    "Não foi possível carregar a imagem.",
    "Ik zie geen afbeelding.",
    "Nie widzę żadnego obrazu.",
    "Изображение не загружено.",
    "看起来您没有上传图片。",
    "画像が表示されていません。",
)


@pytest.mark.parametrize("text", REFUSALS)
def test_a_refusal_in_any_language_is_no_alt_text(text: str) -> None:
    assert refusal(text) and alt_texts({"a": text})["a"].text == ""
    assert checked_refusal(rows_of({"a": [text]})[0]), "check finds it, too"


@pytest.mark.parametrize(
    "text",
    [
        "Unfortunately named shop on a corner.",
        "Sorry sight of a wrecked car in a ditch.",
        "Please share the road sign beside a cyclist.",
        "No image of a dog is on the wall.",
        "Apologetic dog looks up at the camera.",
        "Leider-Schild an einer Tür.",
    ],
)
def test_a_caption_that_begins_like_a_refusal_is_none(text: str) -> None:
    assert not refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "The image of the camera is blocking the middle word.",
        "The scene of the beach with the blue house is clear without any fading.",
        "The picture of the couple in bed is displayed in the large window.",
        "A picture of a horse hangs above the bed.",
        "A snapshot of a girl is taped to the fridge.",
        "A shot of a lake. The image has just gotten brighter.",
        "A clock on a wall. It shows ten past two.",
    ],
)
def test_words_about_a_picture_in_the_picture_stay(text: str) -> None:
    assert without_openings(text) == (text, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The picture of three buses on a lot.", "Three buses on a lot."),
        ("A photo of a dog that is asleep.", "A dog that is asleep."),
        ("The image has a dog.", "A dog."),
        ("Hier sieht man einen Hund.", "Einen Hund."),
        ("Il s'agit d'une photo d'un chien.", "Un chien."),
        ("Se trata de una imagen de un perro.", "Un perro."),
        ("Questa è una foto di un cane.", "Un cane."),
        ("Trata-se de uma imagem de um cão.", "Um cão."),
        ("Dit is een foto van een hond.", "Een hond."),
        ("Das Bild zeigt einen Hund im Gras.", "Einen Hund im Gras."),
        ("Auf dem Bild ist ein Hund zu sehen, der schläft.", "Ein Hund, der schläft."),
        ("L’image montre un chien.", "Un chien."),
        ("Sur cette image, on voit un chien.", "Un chien."),
        ("La imagen muestra un perro.", "Un perro."),
        ("En la imagen se ve un perro.", "Un perro."),
        ("L'immagine mostra un cane.", "Un cane."),
        ("A imagem mostra um cão.", "Um cão."),
        ("De afbeelding toont een hond.", "Een hond."),
        ("Op de foto is een hond te zien.", "Een hond."),
        ("Zdjęcie przedstawia psa.", "Psa."),
        ("На изображении изображена собака.", "Собака."),
        ("这张图片展示了一只狗。图中有一只猫。", "一只狗。一只猫。"),
        ("この画像には、犬が写っています。", "犬。"),
        ("Ein Hund liegt im Gras.", "Ein Hund liegt im Gras."),
        ("Un cadre montre une image.", "Un cadre montre une image."),
    ],
)
def test_words_that_say_only_that_there_is_a_picture_go_in_any_language(text: str, expected: str) -> None:
    assert without_openings(text)[0] == expected


FLAGGED = {"error": {"message": "Input was flagged", "code": 403, "metadata": {"reasons": ["violence"]}}}
AZURE = {"error": {"message": "The response was filtered", "code": "content_filter", "status": 400}}


@pytest.mark.parametrize(("status", "error"), [(403, FLAGGED), (400, AZURE), (200, FLAGGED)])
def test_a_flagged_picture_is_one_picture_without_a_caption(
    server: FaultServer, tmp_path: Path, status: int, error: Any
) -> None:
    first: list[Any] = []

    def errors(body: bytes) -> tuple[int, Any] | None:
        shown = json.loads(body)["messages"][-1]["content"][0]["image_url"]["url"]
        first.append(shown)
        return (status, error) if shown == first[0] else None

    server.errors = errors
    summary = caption(server, tmp_path / "a.jsonl", concurrency=1)
    assert (summary.written, len(summary.failed), summary.unanswered) == (COUNT - 1, 1, 0)
    assert error["error"]["message"] in next(iter(summary.failed))[1]


def test_a_403_after_answers_is_about_its_picture_and_before_them_about_the_key(server: FaultServer) -> None:
    model = open_backend(f"openai:m@{server.url}")
    server.errors = lambda body: (403, {"error": {"message": "no"}})
    with pytest.raises(BackendError, match="the server expects a different API key: set OPENAI_API_KEY") as error:
        model.complete(ASKED)
    assert error.value.fatal
    server.errors = lambda body: None
    model.complete(ASKED)
    server.errors = lambda body: (403, {"error": {"message": "no"}})
    with pytest.raises(BackendError) as error:
        model.complete(ASKED)
    assert not error.value.fatal and not error.value.retry


QUOTA = {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}
RATE = {"message": "Rate limit reached; see your billing page", "type": "tokens", "code": "rate_limit_exceeded"}


@pytest.mark.parametrize(
    ("status", "error", "fatal", "retry"),
    [
        (429, QUOTA, True, False),
        (402, {"message": "Insufficient credits"}, True, False),
        (400, {"message": "Your credit balance is too low"}, True, False),
        (200, {"message": "Insufficient credits", "code": 402}, True, False),
        (429, RATE, False, True),
        (200, {"message": "Provider returned error", "code": 502}, False, True),
        (400, {"message": "image is too large"}, False, False),
    ],
)
def test_an_error_is_classed_by_its_body(
    server: FaultServer, status: int, error: dict[str, Any], fatal: bool, retry: bool
) -> None:
    server.errors = lambda body: (status, {"error": error})
    with pytest.raises(BackendError) as told:
        open_backend(f"openai:m@{server.url}").complete(ASKED)
    assert (told.value.fatal, told.value.retry) == (fatal, retry)


@pytest.mark.parametrize("status", [500, 400])
def test_drop_guesses_says_in_one_line_that_a_server_cannot_score(
    server: FaultServer, tmp_path: Path, status: int
) -> None:
    """vLLM answers prompt_logprobs beside a picture with an error of its own."""
    words = {"error": {"message": "out of range integral type conversion attempted", "code": status}}
    server.errors = lambda body: (status, words) if "prompt_logprobs" in json.loads(body) else None
    started = time.monotonic()
    with pytest.raises(TellapartError, match=r"remove --drop-guesses, or use --decoding confidence=0\.4") as error:
        caption(server, tmp_path / "a.jsonl", drop_guesses=True, retry={"base": 0.5, "cap": 30.0})
    assert "the same command" not in str(error.value), "it would end so again"
    assert (
        "remove --drop-guesses, or use --decoding confidence=0.4" in str(error.value)
        and time.monotonic() - started < 20
    )


@pytest.mark.parametrize(
    ("answer", "caption"),
    [
        ('```json\n{"caption": "A dog runs."}\n```', "A dog runs."),
        ("```\nA dog runs.\n```", "A dog runs."),
        ("Here it is:\n```text\nA dog runs.", "Here it is:\nA dog runs."),
        ('{"description": "A dog.", "tags": ["dog"]}', "A dog."),
        ('{"a": "A dog.", "b": "A cat."}', '{"a": "A dog.", "b": "A cat."}'),
        ("A **brown dog** and *a* __cat__ with `x`.", "A brown dog and a cat with x."),
        ("***A dog*** runs.", "A dog runs."),
        ("# Scene\n\n- A dog\n- A **cat**", "Scene\n\nA dog\nA cat"),
        ("2 * 3 * 4 is 24, and snake_case__name stays.", "2 * 3 * 4 is 24, and snake_case__name stays."),
        ("First.\n\nSecond.", "First.\n\nSecond."),
        pytest.param('{"a":' * 20_000, '{"a":' * 20_000, id="nested too deeply"),
    ],
)
def test_markdown_is_no_part_of_a_caption(answer: str, caption: str) -> None:
    assert without_markdown(answer) == caption


def test_captions_of_a_server_are_one_line_without_markdown(server: FaultServer, tmp_path: Path) -> None:
    server.says = lambda body: "```\nA **red** square.\n\nIt is *small*.\n```"
    caption(server, tmp_path / "a.jsonl")
    assert set(captions_of(tmp_path / "a.jsonl")) == {"A red square. It is small."}
