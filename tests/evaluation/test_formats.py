"""What ``tellapart eval`` writes: tables to paste, files, each caption's scores, and a page with pictures."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from command_line import Cli
from PIL import Image

from tellapart.data.caption_files import read_caption_file
from tellapart.errors import UsageError
from tellapart.evaluation.stored_results import read_results
from tellapart.metrics.holm import holm

COLOURS = ("red", "green", "blue", "white")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two systems, references, and 3:2 photos of the same names."""
    photos = tmp_path / "photos"
    photos.mkdir()
    systems: dict[str, list[dict[str, object]]] = {"under_score": [], "rich": [], "references": []}
    for number, colour in enumerate(COLOURS):
        Image.new("RGB", (300, 200), colour).save(photos / f"{number}.jpg")
        systems["under_score"].append({"id": f"{number}.jpg", "caption": "a thing on a table"})
        systems["rich"].append({"id": f"{number}.jpg", "caption": f"a {colour} <b>thing</b> | on a table"})
        systems["references"].append({"id": f"{number}.jpg", "references": [f"a {colour} thing on a table", "a thing"]})
    for name, records in systems.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return tmp_path


def arguments(files: Path, *more: object) -> list[object]:
    systems = ["--captions", files / "under_score.jsonl", "--captions", files / "rich.jsonl"]
    chosen = ["--metrics", "bleu4,length", "--resamples", 20]
    return ["eval", *systems, "--references", files / "references.jsonl", *chosen, *more]


def test_markdown_has_each_number_once_and_the_signatures_as_footnotes(cli: Cli, files: Path) -> None:
    done = cli(*arguments(files, "--format", "markdown"))
    told = json.loads(cli(*arguments(files, "--json")).out)
    lines = done.out.splitlines()
    [head] = [line for line in lines if line.startswith("| metric | under_score")]
    [row] = [line for line in lines if line.startswith("| length[^2]")]
    assert head == "| metric | under_score | rich |"
    assert f"| {told['systems']['rich']['length']['value']:.1f} [" in row
    assert f"[^1]: `{told['signatures']['bleu4']}`" in lines and f"[^2]: `{told['signatures']['length']}`" in lines
    assert any(line.startswith("| bleu4 | under_score | rich | ") for line in lines)


def test_latex_escapes_names_and_balances_its_groups(cli: Cli, files: Path) -> None:
    out = cli(*arguments(files, "-o", files / "table.tex")).out
    text = (files / "table.tex").read_text()
    assert "under_score" in out and "length" in out  # the terminal has its table all the same
    assert r"system & BLEU-4~$\uparrow$$^{1}$ & length$^{2}$ \\" in text and r"\label{tab:" in text
    assert re.search(r"^under\\_score & [\d.]+ \[", text, re.M)
    assert "tok:ptb" in text and text.count("{") == text.count("}") and not re.search(r"(?<!\\)[%#_]", text)
    assert text.count(r"\begin{") == text.count(r"\end{") == 2


def test_the_file_is_written_as_its_name_ends_or_as_the_option_says(cli: Cli, files: Path) -> None:
    told = json.loads(cli(*arguments(files, "--format", "json")).out)
    for name in ("r.json", "r.csv", "r.md", "r.txt"):
        assert cli(*arguments(files, "--out", files / name)).err.endswith(f"result: {files / name}\n")
    assert json.loads((files / "r.json").read_text()) == told
    rows = list(csv.DictReader((files / "r.csv").open()))
    assert list(rows[0])[-6:] == ["n", "candidates", "chance", "signature", "against", "p"]
    values, pairs = ([row for row in rows if bool(row["against"]) == paired] for paired in (False, True))
    assert {(row["system"], row["metric"]) for row in values} == {
        (name, metric) for name in ("under_score", "rich") for metric in ("bleu4", "length")
    }
    assert all(float(row["value"]) == told["systems"][row["system"]][row["metric"]]["value"] for row in values)
    assert [(row["against"], row["system"], row["metric"],
             *map(float, (row["value"], row["low"], row["high"], row["p"]))) for row in pairs] == [
        (pair["a"], pair["b"], pair["metric"], pair["difference"], pair["low"], pair["high"], pair["p"])
        for pair in told["pairs"]
    ]  # fmt: skip
    assert (files / "r.md").read_text() == cli(*arguments(files, "--format", "markdown")).out
    assert "95% intervals (" in (files / "r.txt").read_text()
    assert "Better or worse (bold): p below 0.05" in (files / "r.txt").read_text()
    assert (files / "r.txt").read_text().endswith(f"length: {told['signatures']['length']}\n")
    assert cli(*arguments(files, "--format", "table")).out == (files / "r.txt").read_text()
    cli(*arguments(files, "--out", files / "odd.name", "--format", "csv", "--json"))
    assert (files / "odd.name").read_text() == (files / "r.csv").read_text()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            ("--out", "r.xlsx"),
            "r.xlsx: cannot infer the format from this name; use one of .json .csv .md .tex .txt, or",
        ),
        (("--format", "html"), "unknown format 'html'; expected one of table, markdown, latex, csv, json"),
        (("--json", "--format", "csv"), "--json and --format csv cannot be combined; remove one of them"),
        (("--per-caption", "p.txt"), "p.txt: expected a name that ends in .jsonl or .csv"),
        (("--report", "page.pdf"), "page.pdf: expected a name that ends in .html or .htm"),
        (("--out", "."), "Invalid value for '--out' / '-o': File '.' is a directory"),
    ],
)
def test_a_file_that_could_not_be_written_is_told_before_anything_is_read(
    cli: Cli, more: tuple[str, ...], told: str
) -> None:
    done = cli("eval", "--captions", "nowhere.jsonl", *more)
    assert done.status == 2 and done.line.startswith(told)


def test_each_captions_scores_have_the_mean_that_the_table_shows(cli: Cli, files: Path) -> None:
    for name in ("p.jsonl", "p.csv"):
        told = json.loads(cli(*arguments(files, "--per-caption", files / name, "--json")).out)
    records = [json.loads(line) for line in (files / "p.jsonl").read_text().splitlines()]
    assert len(records) == 2 * len(COLOURS) and records[0]["caption"] == "a thing on a table"
    for system in ("under_score", "rich"):
        lengths = [record["length"] for record in records if record["system"] == system]
        assert sum(lengths) / len(lengths) == told["systems"][system]["length"]["value"]
    rows = list(csv.DictReader((files / "p.csv").open()))
    assert [float(row["bleu4"]) for row in rows] == [record["bleu4"] for record in records]


def test_of_several_captions_all_are_written_and_can_be_read_again(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "five.jsonl"
    path.write_text('{"id": "1", "captions": ["a dog", "the dog"]}\n{"id": "2", "captions": ["a cat", "cats"]}\n')
    assert cli("eval", "--captions", path, "--metrics", "length,div1", "--per-caption", tmp_path / "p.csv").status == 0
    assert read_caption_file(tmp_path / "p.csv").texts == {"1": ["a dog", "the dog"], "2": ["a cat", "cats"]}


def test_the_report_of_caption_files_shows_pictures_with_every_caption(cli: Cli, files: Path) -> None:
    command = arguments(files, "--data", files / "photos", "--report", files / "page.html")
    assert cli(*command).status == 0
    page = (files / "page.html").read_text(encoding="utf-8")
    assert "evaluation of captions: " in page and "under_score" in page and "Pictures and captions" in page
    assert page.count("data:image/jpeg;base64,") == len(COLOURS)
    assert "a white &lt;b&gt;thing&lt;/b&gt; | on a table" in page and "<b>thing</b>" not in page
    assert "All look-alikes" not in page and "has not been evaluated" not in page and "/tmp/tmp" not in page
    assert f"--report {files / 'page.html'}" in page  # the command that makes it again


def test_with_a_scorer_the_report_has_look_alikes(cli: Cli, files: Path, tiny_scorer: Path) -> None:
    more = ("--data", files / "photos", "--scorer", tiny_scorer, "--metrics", "r@1", "--report", files / "page.html")
    assert cli(*arguments(files, *more)).status == 0
    page = (files / "page.html").read_text(encoding="utf-8")
    assert "All look-alikes" in page and "Pictures and captions" not in page


def test_without_pictures_the_report_has_the_numbers(cli: Cli, files: Path) -> None:
    assert cli(*arguments(files, "--report", files / "page.html")).status == 0
    page = (files / "page.html").read_text(encoding="utf-8")
    assert "Results</h2>" in page and "Pictures and captions" not in page


@pytest.mark.parametrize(
    "content", ["{}", "[]", "3", '{"systems": {}}', '{"systems": {', '{"systems": [], "pairs": []}']
)
def test_results_that_are_not_whole_are_damaged(tmp_path: Path, content: str) -> None:
    assert read_results(tmp_path)[1].systems == {}  # not measured
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(UsageError, match=r"results.json is damaged \(.*remove it and repeat the command"):
        read_results(tmp_path)


def test_equal_captions_differ_by_nothing(cli: Cli, files: Path) -> None:
    (files / "copy.jsonl").write_text((files / "rich.jsonl").read_text())
    given = [*("--captions", files / "rich.jsonl", "--captions", files / "copy.jsonl"),
             *("--references", files / "references.jsonl")]  # fmt: skip
    names = "bleu4,rouge_l,cider,repetition_rate,vocabulary"
    told = json.loads(cli("eval", *given, "--metrics", names, "--json").out)
    found = [(pair["difference"], pair["low"], pair["high"], pair["p"]) for pair in told["pairs"]]
    assert found == [(0, 0, 0, 1)] * 5


def test_holm_s_correction_is_over_all_pairs_and_metrics(cli: Cli, files: Path) -> None:
    (files / "third.jsonl").write_text((files / "references.jsonl").read_text())
    command = ["--captions", files / "third.jsonl", "--set", "pairs=all", "--correction", "holm"]
    done = cli(*arguments(files, *command, "--json"))
    pairs = json.loads(done.out)["pairs"]
    assert len(pairs) == 6 and [pair["p_holm"] for pair in pairs] == holm([pair["p"] for pair in pairs])
    assert "with 20 resamples, p is at least 0.0476, and" in " ".join(json.loads(done.out)["notes"])
    text = cli(*arguments(files, *command, "--format", "table")).out
    assert "p (Holm)" in text and "Better or worse (bold): p (Holm) below 0.05" in text
    cli(*arguments(files, *command, "-o", files / "t.csv"))
    rows = [row for row in csv.DictReader((files / "t.csv").open()) if row["against"]]
    assert [float(row["p_holm"]) for row in rows] == [pair["p_holm"] for pair in pairs]
    wrong = cli(*arguments(files, "--correction", "bonferroni"))
    assert wrong.status == 2 and "correction is 'bonferroni'; expected one of none, holm" in wrong.err


def test_a_page_of_three_systems_has_every_difference(cli: Cli, files: Path) -> None:
    (files / "third.jsonl").write_text((files / "references.jsonl").read_text())
    cli(*arguments(files, "--captions", files / "third.jsonl", "--report", files / "page.html"))
    page = (files / "page.html").read_text()
    changes = page[page.index("What changed</h2>") :]
    for later in ("rich", "third"):
        assert f"From <b><bdi>under_score</bdi></b> to <b><bdi>{later}</bdi></b>" in changes
        assert f"<bdi>{later}</bdi> − <bdi>under_score</bdi></th>" in page
