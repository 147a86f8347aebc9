"""Choosing and editing captions behind a server: as of the captioner itself, asked through `tellapart serve`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from fault_server import FaultServer
from serving import served

from tellapart.boost.replies import Reply
from tellapart.captioners import load_captioner
from tellapart.captioners.captioner import Captioner
from tellapart.data import Dataset, open_data
from tellapart.data.pictures import FilePicture, content_key
from tellapart.errors import TellapartError, UsageError
from tellapart.inference.caption import caption_pictures
from tellapart.inference.caption_by_server import ServerSummary, caption_by_server
from tellapart.inference.chat_request import ChatRequest
from tellapart.inference.doubts import Beliefs
from tellapart.inference.server_captions import grey_picture, word_log_probs
from tellapart.inference.service import Service
from tellapart.language.token_spans import spelled_spans, token_bytes
from tellapart.language.words import content_words
from tellapart.models.decoding import Decoding
from tellapart.scenes import Scenes
from tellapart.scorers import load_scorer
from tellapart.scorers.base import Scorer

COUNT = 5


@dataclass
class Recorded(Service):
    """The endpoint, which keeps what it was asked."""

    asked: list[ChatRequest] = field(default_factory=list)

    def answer(self, asked: ChatRequest) -> dict[str, Any]:
        self.asked.append(asked)
        return super().answer(asked)


class OneChoice(Recorded):
    """A server that passes over ``n``."""

    def answer(self, asked: ChatRequest) -> dict[str, Any]:
        return super().answer(asked.model_copy(update={"n": 1}))


class RefusesChoices(Recorded):
    """A server that takes no ``n``."""

    def answer(self, asked: ChatRequest) -> dict[str, Any]:
        if asked.n > 1:
            raise UsageError("only one completion is allowed")
        return super().answer(asked)


class NoLogProbs(Recorded):
    """A server that passes over ``logprobs`` and ``prompt_logprobs``."""

    def answer(self, asked: ChatRequest) -> dict[str, Any]:
        if asked.prompt_logprobs is not None:
            raise UsageError("extra inputs are not permitted: prompt_logprobs")
        return super().answer(asked.model_copy(update={"logprobs": None}))


@pytest.fixture(scope="module")
def captioner() -> Captioner:
    return load_captioner("scenes")


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return load_scorer("scenes")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Scenes as files, whose ids are those under which the endpoint draws samples for the seed 0."""
    folder = tmp_path_factory.mktemp("served")
    lines = []
    for number, scene in enumerate(Scenes(COUNT)):
        scene.item().picture.image().save(folder / f"{number}.png")
        key = FilePicture(folder / f"{number}.png").key()
        lines.append(json.dumps({"id": content_key(f"{key}|0".encode()), "image": f"{number}.png"}))
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n")
    return open_data(f"jsonl:{folder / 'data.jsonl'}")


def captions_of(path: Path) -> dict[str, Any]:
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {row["id"]: row.get("caption") or row["captions"] for row in rows}


def compared(
    captioner: Captioner, pictures: Dataset, folder: Path, service: Recorded | None = None, **options: Any
) -> tuple[dict[str, Any], dict[str, Any], ServerSummary, Recorded]:
    """Captions of the captioner, those behind its server, and what the server was asked."""
    service = service or Recorded(captioner, Decoding())
    caption_pictures(captioner, pictures, folder / "here.jsonl", progress=False, **options)
    with served(service) as address:
        out = folder / "there.jsonl"
        summary = caption_by_server(
            f"openai:default@{address}/v1", pictures, out, progress=False, concurrency=3, **options
        )
    return captions_of(folder / "here.jsonl"), captions_of(folder / "there.jsonl"), summary, service


@pytest.mark.long
@pytest.mark.parametrize("choice", ["consensus", "consensus with a scorer", "best-of", "samples", "sure consensus"])
def test_what_is_chosen_behind_a_server_is_what_the_captioner_chooses(
    choice: str, captioner: Captioner, scorer: Scorer, pictures: Dataset, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    consensus = Decoding(kind="consensus", candidates=7, temperature=1.2, max_tokens=49)
    options: dict[str, dict[str, Any]] = {
        "consensus": {"decoding": consensus},
        "sure consensus": {"decoding": consensus.model_copy(update={"confidence": 0.6})},
        "consensus with a scorer": {
            "decoding": consensus.model_copy(update={"scorer_weight": 0.5}),
            "scorer": scorer,
        },
        "best-of": {"decoding": Decoding(kind="sample", max_tokens=49), "best_of": 7, "scorer": scorer},
        "samples": {"decoding": Decoding(kind="sample", samples=7, max_tokens=49)},
    }
    here, there, summary, service = compared(captioner, pictures, tmp_path, **options[choice])
    assert there == here and len(here) == COUNT
    assert [asked.n for asked in service.asked] == [7] * COUNT, "one request for all samples"
    assert (summary.tally.requests, summary.tally.asked, summary.tally.kept) == (COUNT, 7 * COUNT, 0)
    line = capsys.readouterr().err
    assert f"{COUNT} requests expected ({7 * COUNT} if the server returns only one choice per request), at most" in line
    assert f"at most {2 * 7 * COUNT} including retries" in line
    assert len((tmp_path / "there.ledger.jsonl").read_text().splitlines()) == 7 * COUNT


@pytest.mark.parametrize("kind", [OneChoice, RefusesChoices])
def test_a_server_of_one_choice_gets_a_request_for_each_sample(
    kind: type[Recorded], captioner: Captioner, pictures: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = kind(captioner, Decoding())
    decoding = Decoding(kind="consensus", candidates=4, temperature=1.2, max_tokens=49)
    with served(service) as address:
        summary = caption_by_server(
            f"openai:default@{address}/v1?in=1000&out=0",
            pictures,
            tmp_path / "a.jsonl",
            decoding=decoding,
            progress=False,
        )
    assert (summary.written, summary.tally.requests) == (COUNT, 4 * COUNT)
    said = capsys.readouterr().err
    assert said.count("the server returns one choice per request") == 1
    most = re.search(r"at most (\d+) including retries", said)
    assert most is not None and summary.tally.requests <= int(most[1]) == 8 * COUNT
    assert f"cost up to {COUNT * 1.008:.2f} without retries, up to {8 * COUNT * 1.008:.2f} with" in said
    assert sorted(asked.seed or 0 for asked in service.asked) == sorted([0, 1, 2, 3] * COUNT)


def test_samples_that_were_paid_for_are_not_asked_again(
    captioner: Captioner, pictures: Dataset, tmp_path: Path
) -> None:
    service, kept = Recorded(captioner, Decoding()), tmp_path / "ledger.jsonl"
    with served(service) as address:
        for candidates in (4, 6):
            decoding = Decoding(kind="consensus", candidates=candidates, temperature=1.2, max_tokens=49)
            out = tmp_path / f"{candidates}.jsonl"
            summary = caption_by_server(
                f"openai:default@{address}/v1", pictures, out, decoding=decoding, ledger=kept, progress=False
            )
    assert [asked.n for asked in service.asked] == [4] * COUNT + [2] * COUNT
    assert (summary.tally.kept, summary.tally.asked) == (4 * COUNT, 2 * COUNT)


def test_a_sample_that_is_no_caption_leaves_the_others_to_choose_from(pictures: Dataset, tmp_path: Path) -> None:
    texts = ["a red star on snow", "", "a red star on the snow", "I'm sorry, but I cannot help with that."]
    with FaultServer() as server:
        server.says = lambda body: texts[json.loads(body)["seed"] % 4]
        decoding = Decoding(kind="consensus", candidates=4)
        summary = caption_by_server(
            f"openai:m@{server.url}", pictures, tmp_path / "a.jsonl", decoding=decoding, progress=False
        )
    assert set(captions_of(tmp_path / "a.jsonl").values()) <= {texts[0], texts[2]} and summary.written == COUNT
    assert f"{2 * COUNT} samples were not usable captions" in "\n".join(summary.lines())


def test_nouns_that_the_server_is_not_sure_of_are_left_out(
    captioner: Captioner, pictures: Dataset, tmp_path: Path
) -> None:
    plain, _, _, _ = compared(captioner, pictures, tmp_path, decoding=Decoding(max_tokens=49))
    sure = tmp_path / "sure"
    sure.mkdir()
    here, there, summary, service = compared(
        captioner, pictures, sure, decoding=Decoding(max_tokens=49, confidence=0.95)
    )
    assert there == here != plain and summary.unspelled == 0
    assert all(asked.logprobs for asked in service.asked) and len(service.asked) == COUNT


def test_guesses_are_what_is_as_likely_for_a_grey_picture(
    captioner: Captioner, pictures: Dataset, tmp_path: Path
) -> None:
    service, drawn = Recorded(captioner, Decoding()), Decoding(kind="sample", temperature=1.5, max_tokens=49)
    with served(service) as address:
        summary = caption_by_server(
            f"openai:default@{address}/v1",
            pictures,
            tmp_path / "a.jsonl",
            decoding=drawn,
            drop_guesses=True,
            progress=False,
        )
    caption_pictures(captioner, pictures, tmp_path / "plain.jsonl", decoding=drawn, progress=False)
    plain = list(captions_of(tmp_path / "plain.jsonl").values())
    seen = [captioner._encode_frozen(captioner.pixels([item.picture.image()])) for item in pictures]
    grey = captioner._encode_frozen(captioner.pixels([grey_picture().image()]))
    beliefs = Beliefs(captioner, grey, ["grey"])
    expected = [beliefs.without_guesses(own, ["own"], [text])[0] for own, text in zip(seen, plain, strict=True)]
    assert list(captions_of(tmp_path / "a.jsonl").values()) == expected != plain
    assert summary.tally.requests == 3 * COUNT == len(service.asked)
    assert sum(asked.prompt_logprobs == 0 for asked in service.asked) == 2 * COUNT


def test_a_server_without_log_probabilities_is_one_line(
    captioner: Captioner, pictures: Dataset, tmp_path: Path, cli: Cli
) -> None:
    data = pictures.spec
    service = NoLogProbs(captioner, Decoding())
    with served(service) as address:
        for options, line in {
            (
                "--decoding",
                "confidence=0.3",
            ): "openai:default: the server does not return log-probabilities of its answers (logprobs)",
            ("--drop-guesses",): "remove --drop-guesses, or use --decoding confidence=0.4",
        }.items():
            asked = len(service.asked)
            done = cli(
                "caption",
                f"openai:default@{address}/v1",
                data,
                "-o",
                tmp_path / "a.jsonl",
                "--max-tokens",
                49,
                *options,
            )
            assert done.status == 1 and line in done.err.splitlines()[-1], done.err
            assert len(service.asked) - asked <= COUNT
    assert not (tmp_path / "a.jsonl").exists()


def test_what_does_not_go_together_is_refused(cli: Cli, tmp_path: Path, pictures: Dataset) -> None:
    name, out = "openai:m@http://127.0.0.1:9/v1", tmp_path / "a.jsonl"
    for options, line in {
        ("--best-of", "4"): "--best-of requires at least 2 samples and a scorer",
        ("--scorer", "scenes"): "--scorer selects from samples",
        ("--drop-guesses", "--samples", "4"): "--drop-guesses and --samples cannot be combined",
        ("--drop-guesses", "--best-of", "4", "--scorer", "scenes"): "--drop-guesses and --best-of cannot be combined",
        ("--consensus", "8", "--device", "cpu"): "--device requires a local model",
    }.items():
        assert line in cli("caption", name, pictures.spec, "-o", out, *options).line
    decoding = Decoding(kind="consensus")
    with pytest.raises(UsageError, match="the temperature is set by --decoding temperature; remove it from the name"):
        caption_by_server(f"{name}?temperature=0", pictures, out, decoding=decoding)


@pytest.mark.long
def test_a_server_that_is_gone_keeps_what_was_answered(captioner: Captioner, pictures: Dataset, tmp_path: Path) -> None:
    """A picture whose scores are missing has no caption, and the same command asks for these alone."""

    class Dies(Recorded):
        def answer(self, asked: ChatRequest) -> dict[str, Any]:
            if asked.prompt_logprobs is not None and len(self.asked) > COUNT:
                raise TellapartError("out of memory")
            return super().answer(asked)

    service, out = Dies(captioner, Decoding()), tmp_path / "a.jsonl"
    options: dict[str, Any] = {"decoding": Decoding(max_tokens=49), "drop_guesses": True, "progress": False}
    with served(service) as address, pytest.raises(TellapartError, match="out of memory"):
        caption_by_server(
            f"openai:default@{address}/v1",
            pictures,
            out,
            concurrency=1,
            retry={"tries": 2, "base": 0.01, "patience": 1.0},
            **options,
        ).refuse_unanswered()
    again = Recorded(captioner, Decoding())
    with served(again) as address:
        summary = caption_by_server(f"openai:default@{address}/v1", pictures, out, **options)
    assert summary.written + summary.already == COUNT and not summary.failed
    assert len(service.asked) + len(again.asked) == 3 * COUNT


def test_forms_of_other_servers_are_read() -> None:
    """A prompt of vLLM with a picture's tokens and a chat template; choices of OpenAI and of llama.cpp's server."""

    def entry(token: str, log_p: float | None) -> dict[str, Any]:
        return {
            "7": {"logprob": log_p, "rank": 3, "decoded_token": token},
            "9": {"logprob": -0.1, "decoded_token": "x"},
        }

    prompt = [entry("<|im_start|>", -9.5), entry("<|image_pad|>", None), entry("a dog", -1.0), entry("\n", -2.0)]
    own = [entry("a", -0.5), entry(" do", -1.5), entry("g", -0.25)]
    reply = json.dumps({"choices": [], "prompt_logprobs": [None, *prompt, *own]}).encode()
    assert Reply(200, reply).scores("a dog") == (("a", -0.5), (" do", -1.5), ("g", -0.25))
    for other in (b"{}", b"[]", b"no", json.dumps({"prompt_logprobs": [None, *prompt[:2]]}).encode()):
        assert Reply(200, other).scores("a dog") == ()
    content = [{"token": "caf", "logprob": -0.5, "bytes": [99, 97, 102], "top_logprobs": []}]
    content += [{"token": "\ufffd", "logprob": -1.0, "bytes": [195], "top_logprobs": []}]
    content += [{"token": "\ufffd", "logprob": 0.0, "bytes": [169], "top_logprobs": []}]
    content += [{"token": " x", "logprob": -9999.0, "bytes": None, "top_logprobs": []}]
    choice = {"index": 0, "message": {"role": "assistant", "content": "café x"}, "finish_reason": "stop"}
    body = {"choices": [choice | {"logprobs": {"content": content}}, choice], "usage": {"prompt_tokens": 3}}
    answer = Reply(200, json.dumps(body).encode()).answer()
    assert (answer.prompt_tokens, len(answer.others), answer.others[0].tokens) == (3, 1, ())
    words = content_words("café x")
    assert word_log_probs("café x", words, answer.tokens) == [-1.5, -9999.0]


def test_tokens_are_joined_to_words_by_their_text() -> None:
    for text, pieces, expected in (
        ("a dog", [b" a", b" do", b"g", b"<|end|>"], [(0, 1), (1, 4), (4, 5), (5, 5)]),
        ("a dog", ["▁a".encode(), "▁dog".encode()], [(0, 1), (1, 5)]),
        ("a dog", [b"<think>", b"a cat", b"</think>\n", b"a", b" ", b"dog"], [(5, 5)] * 3 + [(0, 1), (1, 2), (2, 5)]),
        ("café x", [b"caf", b"\xc3", b"\xa9", b" x"], [(0, 3), (3, 4), (3, 4), (4, 6)]),
        ("a dog", [b"a cat"], None),
        ("", [b"a"], None),
    ):
        assert spelled_spans(text, pieces) == expected
    captioner = load_captioner("scenes")
    text = "a red star and a café"
    (row,) = captioner.tokenize([text])
    written = captioner.tokenizer.decode(row, skip_special_tokens=True)
    assert b"".join(token_bytes(row, written, captioner.tokenizer)).decode() == written
