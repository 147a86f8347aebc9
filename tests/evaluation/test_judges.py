"""Judges over HTTP: each measure against numbers made by hand, the ledger, abstentions, and the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from judge_server import JudgeServer, after, numbered
from PIL import Image

from tellapart.boost.backends import open_backend
from tellapart.data.pictures import FilePicture
from tellapart.errors import TellapartError, UsageError
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.facts import claim_extractor
from tellapart.evaluation.judges.answers import json_in, letter_in, number_in
from tellapart.evaluation.judges.arena import arena, bradley_terry
from tellapart.evaluation.judges.captionqa_questions import read_choice_questions, read_questions
from tellapart.evaluation.judges.judge import Judge
from tellapart.evaluation.judges.prompts import read_prompt
from tellapart.evaluation.metrics.judge_captionqa import CANNOT, captionqa
from tellapart.evaluation.metrics.judge_facts import checklist_counts, dcscore_verdicts
from tellapart.evaluation.metrics.judge_ratings import clair, rating
from tellapart.language.synonyms import Synonyms
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.registry import METRICS
from tellapart.metrics.slots import CaptionSlot
from tellapart.types import Item

FAST = {"base": 0.001, "cap": 0.01}
TRUE_WORDS = ("dog", "grass", "ball")


def judge_of(server: JudgeServer, folder: Path, settings: str = "", **more: object) -> Judge:
    backend = open_backend(f"openai:org/gpt-x@{server.url}{settings}")
    return Judge(backend, folder / "judge.ledger.jsonl", retry=FAST, **more)  # type: ignore[arg-type]


def asked(
    judge: Judge, captions: list[str], references: list[list[str]] | None = None, picture: Any = None, **inputs: Any
) -> tuple[EvalContext, CaptionSlot]:
    """What a metric of a judge gets: captions of pictures "1", "2", … and the judge."""
    ids = [str(n) for n in range(1, len(captions) + 1)]
    items = None if picture is None else [Item(id_, picture) for id_ in ids]
    return EvalContext(ids, items, references, inputs=EvalInputs(judge=judge, **inputs)), CaptionSlot(
        captions, references
    )


def values(measured: Measurement) -> list[float]:
    assert measured.value_N is not None
    return [float(value) for value in measured.value_N]


@pytest.fixture
def photo(tmp_path: Path) -> FilePicture:
    """A 3:2 photo."""
    path = tmp_path / "photo.jpg"
    Image.effect_noise((480, 320), 60).convert("RGB").save(path)
    return FilePicture(path)


def by_words(text: str, shown: bool) -> str:
    """Answers each of our prompts by the words of the captions in it."""
    if "Split this description" in text:
        caption = after(text, "Description:")
        return (
            "Here:\n```json\n"
            + json.dumps([f"There is a {word}." for word in caption.split() if len(word) > 2])
            + "\n```"
        )
    if "Which of these statements" in text:
        assert shown
        units = numbered(after(text, "true of the image?"))
        return json.dumps([any(word in unit for word in TRUE_WORDS) for unit in units])
    if "numbered statements" in text:
        units, facts = numbered(after(text, "about an image:")), numbered(after(text, "none does:"))
        return json.dumps([units.index(fact) + 1 if fact in units else 0 for fact in facts])
    if "same image" in text:
        shared = set(after(text, "Candidate:").split()) & set(after(text, "References:").split())
        return f'{{"score": {20 * len(shared - {"-"})}, "reason": "words"}}'
    if "Rate both answers" in text:
        own = {"candidate": len(after(text, "(the candidate):").split()), "reference": 8}
        return f"{json.dumps(own)}" if own["candidate"] else "I cannot"
    if "Rate the candidate" in text:
        return "I think 7 of 10"
    raise AssertionError(text)


def test_clair_and_rating(tmp_path: Path) -> None:
    with JudgeServer(by_words) as server:
        judge = judge_of(server, tmp_path)
        references = [["dog on grass", "a dog"], ["ball"]]
        assert values(clair(*asked(judge, ["dog on moon", "cat"], references))) == [40.0, 0.0]
        assert values(rating(*asked(judge, ["dog"], [["a dog"]]))) == [7.0]
        assert all(not isinstance(body["messages"][-1]["content"], list) for body in server.bodies)


def test_relative_ratings_are_of_the_instructions_and_by_category(tmp_path: Path, cli: Cli) -> None:
    """Paper 1, table 7: 100 x sums of both ratings, of seven kinds of Vicuna's questions; math counts for none."""
    rows = [("generic", "a b c d"), ("generic", "a b"), ("writing", "a b c d e f"), ("math", "a b c d e f g")]
    files = {
        "question": [{"question_id": n, "text": f"ask {n}", "category": kind} for n, (kind, _) in enumerate(rows, 1)],
        "answer": [{"question_id": n, "text": f"told {n}"} for n in range(1, 5)],
        "system": [{"id": n, "caption": text} for n, (_, text) in enumerate(rows, 1)],
    }
    for name, lines in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    names = ("smile_relative", "smile_relative.generic", "smile_relative.writing", "smile_relative.fermi")
    with JudgeServer(by_words) as server:
        done = cli(
            "eval", "--data", f"instructions:{tmp_path}/question.jsonl", "--references", tmp_path / "answer.jsonl",
            "--captions", tmp_path / "system.jsonl", "--metrics", ",".join(names), "--json",
            "--llm-judge", f"openai:m@{server.url}", "--set", f"ledger={tmp_path}/j.ledger.jsonl",
        )  # fmt: skip
        assert done.status == 0, done.err
        asked = [body["messages"][-1]["content"] for body in server.bodies]
    assert len(asked) == 4 and all(f"Request:\nask {n}" in "".join(asked) for n in range(1, 5))
    assert "Describe the following image" not in "".join(asked)
    found = json.loads(done.out)["systems"]["system"]
    values = [next(own["value"] for key, own in found.items() if key.partition("@")[0] == name) for name in names]
    assert values[:3] == pytest.approx([100 * 12 / 24, 100 * 6 / 16, 100 * 6 / 8])
    assert values[3] is None or values[3] != values[3]


def test_dcscore_by_hand(tmp_path: Path, photo: FilePicture) -> None:
    """Caption: dog, ball (true, not in the references), cat (false). References: dog, grass."""
    with JudgeServer(by_words) as server:
        judge = judge_of(server, tmp_path)
        (found, none) = dcscore_verdicts(*asked(judge, ["dog ball cat", ""], [["dog grass"]] * 2, photo))
    assert found is not None and (found.claims, found.correct) == (3, 2)
    # Q = 1 (dog), T = 1 (ball), O = 2
    assert (found.recalled, found.expected) == (2, 3) and found.precision == pytest.approx(2 / 3)
    assert none is not None and none.claims == 0 and none.f == 0
    with JudgeServer(lambda text, shown: by_words(text, shown) if "Split" in text else "I cannot") as server:
        (tmp_path / "again").mkdir()
        judge = judge_of(server, tmp_path / "again")
        assert dcscore_verdicts(*asked(judge, ["dog ball"], [["dog grass"]], photo)) == [None]
    assert judge.notes()[-1] == "gpt-x abstained from 1 of 1 questions (dcscore)"


def test_an_answer_is_asked_for_once_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    references = [["dog on grass"]] * 3
    with JudgeServer(by_words) as server:
        first = clair(*asked(judge_of(server, tmp_path, "?in=10&out=20"), ["dog", "cat", "dog"], references))
        assert len(server.bodies) == 2  # two captions are the same question
        said = capsys.readouterr().err
        assert "requests expected, at most 4 including retries of unusable" in said and "; cost up to " in said
        server.fails = 2
        again = judge_of(server, tmp_path)
        found = clair(*asked(again, ["dog", "cat", "dog", "grass"], [*references, ["grass"]]))
        assert values(found)[:3] == values(first)
        assert len(server.bodies) == 5  # two failures, and one new question
    line = json.loads((tmp_path / "judge.ledger.jsonl").read_text().splitlines()[0])
    assert line["stage"] == "clair" and line["model"] == "openai:org/gpt-x"
    (days,) = json.loads((tmp_path / "judge.ledger.jsonl.dates.json").read_text()).values()
    assert again.tag() == f"gpt-x {days[0]}" and len(days) == 1


def test_a_judge_may_abstain(tmp_path: Path) -> None:
    def reply(text: str, shown: bool) -> str:
        return "I cannot judge this." if "cat" in text else '<think>{"score": 1}</think> {"score": 80}'

    with JudgeServer(reply) as server:
        judge = judge_of(server, tmp_path)
        found = values(clair(*asked(judge, ["cat", "dog"], [["dog"]] * 2)))
        assert np.isnan(found[0]) and found[1] == 80
        assert len(server.bodies) == 3
        assert {body.get("temperature") for body in server.bodies} == {None, 0.7}, "only a second try sets it"
    assert judge.notes() == ["gpt-x abstained from 1 of 2 questions (clair)"]


def test_a_list_of_the_wrong_length_is_asked_for_again(tmp_path: Path) -> None:
    pytest.importorskip("HanTa")
    answers = iter(['["yes"]', '["yes", "no"]', '["yes", "perhaps"]', '["yes", "no", "no"]'])
    with JudgeServer(lambda text, shown: next(answers)) as server:
        judge = judge_of(server, tmp_path)
        assert checklist_counts(*asked(judge, ["a dog"], [["a red dog"]])).tolist() == [[1, 1, 0]]
        assert np.isnan(checklist_counts(*asked(judge, ["a cat"], [["a red dog"]]))).all() and len(server.bodies) == 4
    assert judge.notes() == ["gpt-x abstained from 1 of 2 questions (checklist)"]


def test_a_checklist_names_the_synonyms_and_the_tagger_that_determine_its_facts(tmp_path: Path) -> None:
    pytest.importorskip("HanTa")
    synonyms = Synonyms({"puppy": "dog"}, "own.txt@12345678")
    with JudgeServer(by_words) as server:
        plain, own = (
            METRICS.find("checklist_coverage").variant(asked(judge_of(server, tmp_path), ["a dog"], **inputs)[0])
            for inputs in ({}, {"synonyms": synonyms})
        )
    assert f"|extractor:{claim_extractor()}|synonyms:none|" in plain
    assert own == plain.replace("synonyms:none", "synonyms:own.txt@12345678")


def test_a_server_that_fails_is_no_abstention(tmp_path: Path) -> None:
    with JudgeServer(by_words) as server:
        server.fails = 10**6
        with pytest.raises(TellapartError, match="500"):
            clair(*asked(judge_of(server, tmp_path), ["dog"], [["dog"]]))


def test_captionqa_scores_an_honest_reader(tmp_path: Path) -> None:
    """Right where the caption has the answer; else it says that it cannot answer."""

    def reply(text: str, shown: bool) -> str:
        assert not shown
        options = [line.split(". ", 1) for line in after(text, "Options:").splitlines()]
        caption = after(text, "Caption:")
        pick = next((letter for letter, option in options if option in caption), None)
        cannot = next((letter for letter, option in options if option == CANNOT), "A")
        return f"The caption says it.\n{pick or cannot}"

    questions = {
        "1": [
            {"question": "What colour is the cat?", "choices": ["gray", "red", "white", "black"], "answer": "gray"},
            {"question": "What is it on?", "choices": ["leaves", "a sofa", "snow", "a car"], "answer": "leaves"},
            {"question": "Is it asleep?", "choices": ["yes", "no"], "answer": "no"},
        ]
    }
    (tmp_path / "questions.json").write_text(json.dumps(questions))
    with JudgeServer(reply) as server:
        judge = judge_of(server, tmp_path)
        read = read_questions(tmp_path / "questions.json")
        context, slot = asked(judge, ["a gray cat, no doubt awake", "-"], questions=read)
        score, right = (values(captionqa(which, context, slot)) for which in (0, 1))
    # right, cannot (1/4 + 0.05), right
    assert score[0] == pytest.approx(100 * (1 + 0.3 + 1) / 3) and right[0] == pytest.approx(200 / 3)
    assert np.isnan(score[1])
    (tmp_path / "questions.json").write_text('{"a": [{"question": "?", "choices": ["x", "y"], "answer": "z"}]}')
    with pytest.raises(UsageError, match=": the answer 'z' about a is not one of the"):
        read_questions(tmp_path / "questions.json")


def test_pictures_without_questions_are_counted_in_a_note(tmp_path: Path) -> None:
    """Two pictures share a stem: questions about ``a/1.jpg`` are asked about neither."""
    entry = {"question": "Is it asleep?", "choices": ["yes", "no"], "answer": "no"}
    (tmp_path / "questions.json").write_text(json.dumps({"a/1.jpg": [entry], "a/2.jpg": [], "a/3.jpg": [entry]}))
    questions, notes = read_choice_questions(tmp_path / "questions.json", ["b/1", "a/2", "a/3", "a/1"], None)
    assert set(questions) == {"a/3"}
    assert "3 of 4 captioned pictures have no question ('b/1', 'a/2', 'a/1'); CaptionQA leaves them out" in notes[-1]


def test_the_arena_asks_in_both_orders(tmp_path: Path, photo: FilePicture) -> None:
    """The judge prefers "good" to "fair" to "poor"; of two others it takes whatever stands first."""

    def reply(text: str, shown: bool) -> str:
        assert shown
        worth = {"good": 3, "fair": 2, "poor": 1}
        first, second = (worth.get(after(text, f"Description {letter}:"), 0) for letter in "AB")
        return "Because.\n" + ("A" if first >= second else "B")

    captions = {
        "one": ["good", "good", "x", "same"],
        "two": ["fair", "poor", "y", "same"],
        "three": ["poor", "fair", "z", "q"],
    }
    with JudgeServer(reply) as server:
        judge = judge_of(server, tmp_path)
        found = arena(judge, captions, list("1234"), [photo] * 4, resamples=100)
        # "same" and "same" is a tie without a question; equal questions about equal pictures are asked once.
        assert len(server.bodies) == len({json.dumps(body, sort_keys=True) for body in server.bodies}) < 2 * (12 - 1)
    assert found.strengths["one"].value > found.strengths["two"].value >= found.strengths["three"].value
    assert found.contradictions == 3 + 2 and found.abstained == 0 and found.battles == 12
    one = found.strengths["one"]
    assert (one.wins, one.ties, one.losses) == (4, 4, 0) and one.low <= one.value <= one.high
    assert np.mean([own.value for own in found.strengths.values()]) == pytest.approx(1000)


def test_bradley_terry_finds_the_odds() -> None:
    """With many battles, 3 to 1 is 400 log10(3) points, and strengths add up."""
    score = np.array([[0, 3e6, 9e6], [1e6, 0, 3e6], [1e6, 1e6, 0]])
    found = bradley_terry(score)
    assert found[0] - found[1] == pytest.approx(400 * np.log10(3), abs=0.01)
    assert found[1] - found[2] == pytest.approx(400 * np.log10(3), abs=0.01)


def test_answers_of_many_forms() -> None:
    assert json_in('Sure! {"a": [1, 2]} more {') == {"a": [1, 2]} and json_in("none [") is None
    assert number_in('{"score": "85"}', 0, 100) == 85 and number_in("score: 120", 0, 100) is None
    assert letter_in("B", 3) == letter_in("A is long.\n**B**", 3) == letter_in("(b)", 3) == 1
    assert letter_in("D", 3) is None and letter_in("", 3) is None
    for text in ("B. A red car", "B) A dog", "Answer: B. A dog", "**B. A dog**", "A man stands there.\nB. A dog"):
        assert letter_in(text, 3) == 1, text
    assert number_in("On a scale from 0 to 100, I would say 85.", 0, 100) is None
    assert number_in('{"reason": "2 of the "dogs" fit", "score": 85}', 0, 100) == 85
    assert number_in("85/100", 0, 100) == number_in("85", 0, 100) == 85


def test_own_prompts_have_the_same_places(tmp_path: Path) -> None:
    (tmp_path / "clair.txt").write_text("Same? $candidate")
    with pytest.raises(UsageError, match=r"has the placeholders \$candidate; expected \$candidate, \$references"):
        read_prompt("clair", tmp_path)
    (tmp_path / "clair.txt").write_text("Same? $candidate $references costs $5")
    with pytest.raises(UsageError, match=r"clair.txt contains a \$ that begins no placeholder; write \$\$ for"):
        read_prompt("clair", tmp_path)
    (tmp_path / "clair.txt").write_bytes("Même ? $candidate $references".encode("latin-1"))
    with pytest.raises(UsageError, match=r"clair.txt: not valid UTF-8"):
        read_prompt("clair", tmp_path)
    (tmp_path / "clair.txt").write_text("Same? $candidate $references costs $$5")
    prompt = read_prompt("clair", tmp_path)
    assert prompt.fill({"candidate": "$references", "references": "r"}) == "Same? $references r costs $5"
    assert prompt.signature.startswith("prompt:own@")


def test_the_commands(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for name in ("a", "b"):
        Image.effect_noise((48, 32), 60).convert("RGB").save(tmp_path / "photos" / f"{name}.jpg")
    for system, text in (("one", "dog ball cat"), ("two", "dog")):
        lines = [{"image": f"{name}.jpg", "caption": text} for name in "ab"]
        (tmp_path / f"{system}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    references = [{"image": f"{name}.jpg", "captions": ["dog grass"]} for name in "ab"]
    (tmp_path / "references.jsonl").write_text("".join(json.dumps(line) + "\n" for line in references))
    with JudgeServer(by_words) as server:
        judge = f"openai:org/gpt-x@{server.url}"
        done = cli(
            "eval", "--captions", "one.jsonl", "--captions", "two.jsonl", "--references", "references.jsonl", "--data",
            "photos", "--llm-judge", judge, "--metrics", "clair,dcscore,dcscore_precision", "--json",
        )  # fmt: skip
        value = json.loads(done.out)
        key = next(name for name in value["systems"]["one"] if name.startswith("dcscore_precision@gpt-x 2"))
        assert value["systems"]["one"][key]["value"] == pytest.approx(200 / 3)
        assert "prompt:tellapart@" in value["signatures"][key] and "|abstained:0|" in value["signatures"][key]
        assert "gpt-x" in value["metrics"][key]["label"]
        server.reply = lambda text, shown: "A" if after(text, "Description A:") == "dog" else "B"
        shown = cli(
            "study",
            "arena",
            "--captions",
            "one.jsonl",
            "--captions",
            "two.jsonl",
            "--data",
            "photos",
            "--llm-judge",
            judge,
        )
        assert shown.status == 0 and "arena by gpt-x" in shown.out
    line = cli("eval", "--captions", "one.jsonl", "--references", "references.jsonl", "--metrics", "clair").line
    assert "'clair'" in line and "a judge; add --llm-judge" in line
