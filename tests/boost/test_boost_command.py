"""``tellapart boost`` on scenes, from the command to a data set, its statistics and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tellapart.boost import statistics as counted
from tellapart.boost.stage_prompts import BUILTIN
from tellapart.cli.whole_app import whole_app
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.scenes import Scenes

DATA = "scenes:plain?split=train&n=12&seed=31"
SCRIPTED = ["--llm", "scripted", "--mllm", "scripted:error=0.3"]


@pytest.fixture(autouse=True)
def few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """HanTa takes seconds to load."""
    monkeypatch.setattr(counted, "word_analyser", lambda: lambda text: [(word, word, "NN1") for word in text.split()])


def boost(out: Path, *more: str) -> dict[str, Any]:
    usual = [*(SCRIPTED if "--llm" not in more else ()), *(["--one-caption"] if "--per-reference" not in more else ())]
    done = CliRunner().invoke(whole_app(), ["boost", DATA, *usual, *more, "-o", str(out), "--json"])
    assert done.exit_code == 0, done.exception
    return dict(json.loads(done.stdout))


def test_the_result_is_a_data_set_with_all_captions_beside(tmp_path: Path) -> None:
    told = boost(tmp_path / "b.jsonl")
    items = list(open_data(str(tmp_path / "b.jsonl")))
    scenes = {scene.id: scene for scene in Scenes(12, seed=31)}
    rows = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [item.id for item in items] == [row["id"] for row in rows] and {item.id for item in items} == set(scenes)
    for item, row in zip(items, rows, strict=True):
        assert item.references == (row["stages"]["holistic"],) and item.split == "train"
        assert row["references"] == list(scenes[item.id].references) and set(row["stages"]) == {*counted.STAGE_NAMES}
    statistics = told["statistics"]
    assert statistics["items"] == 12 and statistics["captions"]["human"]["words"]["n"] == 60
    assert statistics["captions"]["describe"]["precision"] < 90 < statistics["captions"]["blend"]["precision"]
    assert statistics["describer_errors"]["made"] > 20
    page = (tmp_path / "b.html").read_text()
    assert page.count('<article class="item">') == 12 and rows[0]["stages"]["holistic"] in page


def test_one_stage_alone_gives_its_captions(tmp_path: Path) -> None:
    told = boost(tmp_path / "b.jsonl", "--stages", "blend", "--llm", "scripted")
    assert set(told["statistics"]["captions"]) == {"human", "blend"}
    assert all(len(item.references) == 1 for item in open_data(str(tmp_path / "b.jsonl")))


def test_parts_are_counted_again_as_a_whole(tmp_path: Path) -> None:
    whole = boost(tmp_path / "whole.jsonl")["statistics"]
    parts = []
    for part in ("1/2", "2/2"):
        parts.append(tmp_path / f"part{part[0]}.jsonl")
        assert boost(parts[-1], "--shard", part)["statistics"]["items"] == 6
    done = CliRunner().invoke(
        whole_app(), ["job", "merge", *map(str, parts), "-o", str(tmp_path / "m.jsonl"), "--json"]
    )
    merged = json.loads(done.stdout)["statistics"]
    for kind, own in merged["captions"].items():
        assert (
            own["words"] == whole["captions"][kind]["words"]
            and own["histogram"] == whole["captions"][kind]["histogram"]
        )
        assert "precision" not in own  # the pictures are files now, and their truth is not known
    assert (tmp_path / "m.html").is_file()


def test_a_prompt_of_ones_own_asks_anew_for_its_stage_alone(tmp_path: Path) -> None:
    first = boost(tmp_path / "b.jsonl")["stages"]
    (tmp_path / "describe.txt").write_text((BUILTIN / "describe.txt").read_text().replace("Briefly", "At length"))
    again = boost(tmp_path / "b.jsonl", "--prompts", str(tmp_path))["stages"]
    assert [first[name]["asked"] for name in counted.STAGE_NAMES] == [12, 12, 12]
    assert again["blend"]["asked"] == 0 and again["describe"]["asked"] == 12 and again["holistic"]["asked"] > 6


def test_what_does_not_fit_together_asks_nobody(tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "b.jsonl")]
    for arguments, line in (
        (["--stages", "holistic", "--llm", "scripted"], "stage holistic requires blend and describe; pass --stages"),
        (["--llm", "scripted"], "stage describe requires a model; pass --mllm"),
        (["--stages", "describe", *SCRIPTED], "--llm has no effect on stages describe"),
        ([*SCRIPTED, "--prompts", str(tmp_path)], "contains none of blend.txt"),
        ([*SCRIPTED, "--tokenizer", str(tmp_path)], "has no tokenizer"),
        (["--llm", "scripted", "--mllm", "scripted:error=2"], "must be a probability"),
    ):
        error = CliRunner().invoke(whole_app(), ["boost", DATA, *arguments, *out]).exception
        assert isinstance(error, UsageError) and line in str(error), (arguments, error)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_each_reference_leads_to_a_caption_and_the_picture_is_described_once(tmp_path: Path) -> None:
    """Paper 2 has five HolisticCaps a picture: what `--per-reference`, the default, makes; others fall back alike."""
    told = boost(tmp_path / "b.jsonl", "--per-reference")
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    references = sum(len(line["references"]) for line in lines)
    assert references > 2 * len(lines)
    for line in lines:
        texts = [line["stages"], *line["others"]]
        assert line["captions"] == [own["holistic"] for own in texts]
        assert len(texts) == len(line["references"]) and all(set(own) == {"blend", "holistic"} for own in texts[1:])
    asked = {name: stage["asked"] for name, stage in told["stages"].items()}
    assert asked["describe"] == len(lines) and len(lines) < asked["blend"] <= references
    assert sum(told["statistics"]["captions"]["holistic"]["histogram"].values()) == references
    assert [len(item.references) for item in open_data(str(tmp_path / "b.jsonl"))] == [
        len(line["references"]) for line in lines
    ]
    for place in (1, 2):
        boost(tmp_path / f"part{place}.jsonl", "--per-reference", "--shard", f"{place}/2")
    parts = [str(tmp_path / f"part{place}.jsonl") for place in (1, 2)]
    merged = CliRunner().invoke(whole_app(), ["job", "merge", *parts, "-o", str(tmp_path / "m.jsonl")])
    assert merged.exit_code == 0, merged.exception
    assert [json.loads(line)["captions"] for line in (tmp_path / "m.jsonl").read_text().splitlines()] == [
        line["captions"] for line in lines
    ]
