"""Polaris, Nebula and LongCap-Arena in miniatures of their layouts; repeats of a judge; checklists."""

from __future__ import annotations

import csv
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from judge_server import JudgeServer

from tellapart.errors import UsageError
from tellapart.evaluation.human_judgements.agreement import deviation_over_repeats, mean_over_repeats, measure_agreement
from tellapart.evaluation.human_judgements.layouts import read_judgements
from tellapart.evaluation.human_judgements.published_agreement import PUBLISHED
from tellapart.evaluation.judges.answers import answers_in

REFS = {"1.jpg": ["a dog runs on grass", "a brown dog runs"], "2.jpg": ["two cats sleep", "cats on a bed"]}
ROWS = [
    ("1.jpg", "a dog runs on grass", 1.0),
    ("1.jpg", "a dog  sits", 0.5),
    ("1.jpg", "a red bus", 0.0),
    ("2.jpg", "two cats sleep on a bed", 0.75),
    ("2.jpg", "a dog", 0.25),
]


def write_csv(path: Path, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


@pytest.mark.parametrize(
    ("name", "caption", "score", "layout"),
    [
        ("polaris/polaris_test.csv", "cand", "human_score", "polaris"),
        ("nebula/nebula_test.csv", "mt", "score", "nebula"),
        ("test/desc_dci_val.csv", "cand", "score", "longcap-arena"),
    ],
)
def test_a_row_is_a_caption_with_references_and_a_score(
    tmp_path: Path, name: str, caption: str, score: str, layout: str
) -> None:
    rows = [(picture, text, str(REFS[picture]), value) for picture, text, value in ROWS]
    judged = read_judgements(write_csv(tmp_path / name, ("imgid", caption, "refs", score), rows))
    assert judged.layout == layout and sum(len(row.ratings) for row in judged.captions) == 5
    assert [(row.picture, row.caption, row.ratings[0]) for row in judged.captions] == [
        (picture, " ".join(text.split()), value) for picture, text, value in ROWS
    ]
    assert [list(row.references) for row in judged.captions] == [REFS[picture] for picture, _, _ in ROWS]


def test_parquet_without_names_of_pictures_groups_them_by_references(tmp_path: Path) -> None:
    """As the hub has Polaris: the picture is a column of bytes, which is not read."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table(
        {
            "refs": [REFS[picture] for picture, _, _ in ROWS],
            "cand": [text for _, text, _ in ROWS],
            "img": [{"bytes": b"no picture", "path": None}] * len(ROWS),
            "human_score": [value for *_, value in ROWS],
        }
    )
    parquet.write_table(table, tmp_path / "test-00000-of-00001.parquet")
    judged = read_judgements(tmp_path / "test-00000-of-00001.parquet")
    assert judged.layout == "polaris" and [row.ratings for row in judged.captions] == [(v,) for *_, v in ROWS]
    assert len({row.picture for row in judged.captions}) == 2


def test_spica_corrects_the_scores_of_nebula(tmp_path: Path) -> None:
    rows = [(picture, text, str(REFS[picture]), value) for picture, text, value in ROWS]
    file = write_csv(tmp_path / "nebula_test.csv", ("imgid", "mt", "refs", "score"), rows)
    assert read_judgements(file).notes[0].startswith("published figures use scores corrected by Spica; put")
    corrections = [("1", "a dog sits", 0.2), ("1", "a dog sits", 0.4), ("9", "a dog", 1.0)]
    write_csv(tmp_path / "spica_test.csv", ("imgid", "mt", "score"), corrections)
    judged = read_judgements(file)
    assert [row.ratings[0] for row in judged.captions] == pytest.approx([1.0, 0.3, 0.0, 0.75, 0.25])
    assert judged.rule == "scores:corrected-by-spica" and not judged.notes


def test_longcap_arena_names_aspect_and_split(tmp_path: Path) -> None:
    rows = [(picture, text, str(REFS[picture]), value) for picture, text, value in ROWS]
    for name, table, judges in (
        ("rel_dci_test.csv", "longcap-arena:b-rel", "people, relevance"),
        ("flu_dci_val.csv", "longcap-arena:a-flu", "people, fluency"),
    ):
        judged = read_judgements(write_csv(tmp_path / name, ("imgid", "cand", "refs", "score"), rows))
        assert (judged.table, judged.judges) == (table, judges) and table in PUBLISHED


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (("1.jpg", "a dog", "['a']", "high"), ": 'high' is not a rating; expected a number"),
        (("1.jpg", "a dog", "__import__('os').getcwd()", "1"), "cannot be read in the layout polaris"),
    ],
)
def test_damaged_rows_are_one_line(tmp_path: Path, row: tuple[str, ...], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_judgements(write_csv(tmp_path / "polaris_test.csv", ("imgid", "cand", "refs", "score"), [row]))


def test_the_command_prints_published_figures_beside_intervals(cli: Cli, tmp_path: Path) -> None:
    rows = [(picture, text, str(REFS[picture]), value) for picture, text, value in ROWS]
    file = write_csv(tmp_path / "polaris_test.csv", ("imgid", "cand", "refs", "score"), rows)
    shown = cli("study", "judges", file, "--metrics", "cider,rouge_l", "--resamples", "30")
    assert shown.status == 0 and "published" in shown.out and "52.1" in shown.out and "46.3" in shown.out
    value = json.loads(cli("study", "judges", file, "--metrics", "cider", "--resamples", "30", "--json").out)
    cider = value["metrics"]["cider"]
    assert cider["published"] == 52.1 and cider["low"] <= cider["tau_c"] <= cider["high"]
    assert any(note.startswith("published but not measured here (tau-c): bleu4 46.3") for note in value["notes"])
    assert "b" not in PUBLISHED["polaris"]["cider"]


def test_deviation_over_repeats_is_the_pooled_one() -> None:
    value_KN = np.array([[1.0, 5.0, np.nan, 2.0], [3.0, 5.0, np.nan, np.nan], [2.0, 8.0, 4.0, np.nan]])
    assert mean_over_repeats(value_KN).tolist() == [2.0, 6.0, 4.0, 2.0]
    pooled = np.sqrt((np.var([1, 3, 2], ddof=1) + np.var([5, 5, 8], ddof=1)) / 2)
    assert deviation_over_repeats(value_KN) == pytest.approx(pooled)


def test_repeats_of_a_judge_give_its_own_variance(cli: Cli, tmp_path: Path) -> None:
    rows = [(picture, text, str(REFS[picture]), value) for picture, text, value in ROWS]
    file = write_csv(tmp_path / "polaris_test.csv", ("imgid", "cand", "refs", "score"), rows)
    answers = itertools.count()
    words = ["study", "judges", str(file), "--metrics", "clair,length", "--repeats", "3", "--json"]
    with JudgeServer(lambda text, shown: json.dumps({"score": 10 + 7 * next(answers) % 80})) as server:
        judge = ["--llm-judge", f"openai:tiny@{server.url}", "--ledger", str(tmp_path / "ledger.jsonl")]
        value = json.loads(cli(*words, *judge).out)
        asked = [(body["seed"], body["temperature"]) for body in server.bodies]
        assert len(asked) == 15 and len(set(asked)) == 3 and {t for _, t in asked} == {0.7}
        again = json.loads(cli(*words, *judge).out)
        assert len(server.bodies) == 15  # all is in the ledger
    assert again["metrics"] == value["metrics"]
    (clair,) = (found for name, found in value["metrics"].items() if name.startswith("clair"))
    assert len(clair["repeats"]) == 3 and clair["deviation"] > 0
    assert value["metrics"]["length"]["deviation"] is None
    assert "--repeats requires a judge; add --llm-judge openai:MODEL@URL" in cli(*words).line


def test_a_checklist_has_one_question_for_each_fact(cli: Cli, tmp_path: Path) -> None:
    """The judge of this test knows words: a fact is stated if all its words are in the caption, "no" if it has some."""
    pytest.importorskip("HanTa")
    captions = {"1": "a brown dog runs on grass", "2": "a dog"}
    references = {"1": ["a brown dog runs on grass"], "2": ["two cats sleep on a bed"]}
    for name, value in (("captions", captions), ("references", {k: v[0] for k, v in references.items()})):
        lines = [json.dumps({"id": id_, "caption": text}) for id_, text in value.items()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")

    def reply(text: str, shown: bool) -> str:
        caption = text.split("Caption:\n")[1].split("\n")[0].split()
        facts = re.findall(r"^\d+\. (.*)$", text, re.M)
        said = ["yes" if set(fact.split()) <= set(caption) else "not_mentioned" for fact in facts]
        return json.dumps(said if "brown" in caption else [*said[:-1], "no"])

    with JudgeServer(reply) as server:
        done = cli(
            "eval", "--captions", tmp_path / "captions.jsonl", "--references", tmp_path / "references.jsonl",
            "--metrics", "checklist", "--llm-judge", f"openai:tiny@{server.url}",
            "--set", f"ledger={tmp_path / 'ledger.jsonl'}", "--resamples", "20", "--json",
        )  # fmt: skip
        prompts = sorted((body["messages"][-1]["content"] for body in server.bodies), key=lambda p: "brown" not in p)
    assert len(prompts) == 2 and "brown dog" in prompts[0], done
    metrics = {
        key.partition("@")[0]: v["value"] for key, v in next(iter(json.loads(done.out)["systems"].values())).items()
    }
    counts = [len(re.findall(r"^\d+\. ", prompt, re.M)) for prompt in prompts]
    stated = sum(
        set(fact.split()) <= set(captions["1"].split()) for fact in re.findall(r"^\d+\. (.*)$", prompts[0], re.M)
    )
    assert stated >= 3
    assert metrics["checklist_coverage"] == pytest.approx(100 * (stated + 1) / sum(counts))
    assert metrics["checklist_precision"] == pytest.approx(100 * stated / (stated + 1))


def test_answers_of_a_checklist() -> None:
    assert answers_in('["Yes", "not_mentioned", "no"]', 3) == ["yes", "not mentioned", "no"]
    assert (
        answers_in('["yes"]', 2) is None and answers_in('["yes", "maybe"]', 2) is None and answers_in("no", 1) is None
    )


def test_measures_without_a_published_table_have_no_such_column() -> None:
    from tellapart.evaluation.human_judgements.judgements import Judgements, RatedCaption

    rows = tuple(RatedCaption(p, t, tuple(REFS[p]), (v,)) for p, t, v in ROWS)
    found = measure_agreement(Judgements("mine", rows), ["bleu1"])
    heads = [column.header for column in found.table().columns]
    assert "published" not in heads and "SD" not in heads
