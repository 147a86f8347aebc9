"""Metrics of other packages and of a file beside the command: one entry for the list, the table and the page."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Cli

from tellapart.errors import UsageError
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.metric_list import list_metrics, metric_markdown
from tellapart.evaluation.metrics.recall import mean_rank
from tellapart.evaluation.selected_caption import with_choices
from tellapart.metrics.metric_info import Candidates
from tellapart.metrics.registry import METRICS
from tellapart.utils import allowed_code

DOCS = Path(__file__).parent.parent.parent / "docs" / "reference" / "metrics.md"
CODE = '''
import numpy as np

from tellapart.metrics.metric import Metric


def shouting(captions, references=None):
    """Percent of a caption's letters that are capitals."""
    value_N = np.array([100 * sum(map(str.isupper, text)) / max(1, len(text)) for text in captions])
    return value_N.mean(), value_N


def copied(captions, references):
    """Percent of captions that are one of their references."""
    value_N = np.array([100.0 * (text in own) for text, own in zip(captions, references)])
    return value_N.mean(), value_N


marks = Metric(
    name="marks",
    factory=lambda captions, references=None: (0.0, np.zeros(len(captions))),
    label="exclamation marks",
    help="exclamation marks in a caption",
    direction="lower",
    aliases=("bangs",),
)
number = 7


def three(captions, references=None):
    return 3


def few(captions, references=None):
    return 0.5, np.zeros(1)


def words(captions, references=None):
    return "good", ["a", "b"]


def bare(captions, references=None):
    return 0.5, None
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with two metrics, and two caption files."""
    (tmp_path / "loud_metrics.py").write_text(CODE)
    info = tmp_path / "loud-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tellapart.metrics]\nshouting = loud_metrics:shouting\nmarks = loud_metrics:marks\n"
    )
    (tmp_path / "quiet.txt").write_text("a dog\na cat\n")
    (tmp_path / "loud.txt").write_text("A DOG\nA cat\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("loud_metrics", None)


def test_an_installed_metric_is_listed_measured_and_reported(package: Path, cli: Cli) -> None:
    listed = {one["name"]: one for one in json.loads(cli("eval", "--metrics", "list", "--json").out)["metrics"]}
    assert listed["shouting"]["meaning"] == "Percent of a caption's letters that are capitals."
    assert listed["marks"]["label"] == "exclamation marks" and listed["marks"]["direction"] == "lower"
    assert "exclamation marks" in cli("eval", "--metrics", "list").out

    files = [part for name in ("quiet", "loud") for part in ("--captions", str(package / f"{name}.txt"))]
    page = package / "page.html"
    done = cli("eval", *files, "--metrics", "SHOUTING,bangs", "--report", str(page), "--json")
    results = json.loads(done.out)
    assert results["systems"]["quiet"]["shouting"]["value"] == 0
    assert results["systems"]["loud"]["shouting"]["value"] == pytest.approx((80 + 20) / 2)
    assert results["metrics"]["marks"]["label"] == "exclamation marks"
    assert results["metrics"]["marks"]["direction"] == "lower" and results["metrics"]["shouting"]["direction"] is None
    assert "shouting" in page.read_text() and "marks" in page.read_text()
    assert "shouting" in cli("eval", *files, "--metrics", "shouting").out
    assert "marks" in cli("eval", *files).out, "computed by default, as every metric that the inputs allow"


def test_a_metric_by_its_dotted_path(package: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowed_code, "_allowed", set())
    files = ("--captions", str(package / "loud.txt"))
    references = ("--references", str(package / "quiet.txt"))
    done = cli("eval", *files, *references, "--metrics", "length,loud_metrics:copied", "--json")
    assert list(json.loads(done.out)["systems"]["loud"]) == ["length", "copied"]
    assert "requires references" in cli("eval", *files, "--metrics", "loud_metrics:copied").line
    assert "has no attribute 'nothing'" in cli("eval", *files, "--metrics", "loud_metrics:nothing").line
    assert "' is a int; expected a function or a Metric" in cli("eval", *files, "--metrics", "loud_metrics:number").line


@pytest.mark.parametrize("name", ["three", "few", "words"])
def test_a_metric_that_returns_something_else_is_one_line(
    package: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(allowed_code, "_allowed", set())
    done = cli("eval", "--captions", str(package / "loud.txt"), "--metrics", f"loud_metrics:{name}")
    assert done.status == 1 and f"metric '{name}' returned" in done.line
    assert "corpus is a number; values is None or an array of 2 numbers, one per caption" in done.line


def test_a_metric_without_values_needs_its_statistic(package: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowed_code, "_allowed", set())
    done = cli("eval", "--captions", str(package / "loud.txt"), "--metrics", "loud_metrics:bare")
    assert done.status == 1 and "register its statistic" in done.line


def test_a_dotted_path_runs_only_where_it_is_allowed(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowed_code, "_allowed", set())
    systems = {"a": {"1": "A dog"}}
    with pytest.raises(UsageError, match="add --allow-code loud_metrics:copied"):
        evaluate(systems, references={"1": ["a dog"]}, metrics=["loud_metrics:copied"])
    allowed_code.allow_code("loud_metrics:copied")
    results = evaluate(systems, references={"1": ["A dog"]}, metrics=["loud_metrics:copied"], resamples=5)
    assert results.systems["a"]["copied"].value == 100


def test_a_broken_plugin_is_a_line_and_stops_nothing(package: Path, cli: Cli) -> None:
    (package / "loud-1.0.dist-info" / "entry_points.txt").write_text(
        "[tellapart.metrics]\nbad = loud_metrics:nothing\n"
    )
    done = cli("eval", "--captions", str(package / "loud.txt"))
    assert done.status == 0 and done.err.count("metric 'bad' of the installed package loud cannot be loaded") == 1
    assert "cannot be loaded" in cli("eval", "--captions", str(package / "loud.txt"), "--metrics", "bad").line


def test_the_table_in_the_docs_is_the_registry() -> None:
    text = DOCS.read_text(encoding="utf-8")
    table = text.partition("<!-- metrics -->\n")[2].partition("<!-- end -->")[0]
    assert table.strip() == metric_markdown(list_metrics()).strip(), "type: python tools/metric_table.py"


def test_variants_and_additional_scorers_have_a_label_and_a_direction() -> None:
    cider = METRICS.builtin()["cider"]
    infos = [
        METRICS.builtin()["bleu4"].info(),
        METRICS.builtin()["recall@1.random100"].info(),
        METRICS.builtin()["recall@5.lookalike"].info(scorer="second"),
        mean_rank("bag3").info(Candidates(3, 3, 2.0)),
        *(choice.info() for choice in with_choices(cider)),
        with_choices(cider)[1].info(scorer="second"),
        METRICS.builtin()["ppl"].info(),
    ]
    assert [(info.label, info.direction) for info in infos] == [
        ("BLEU-4", "higher"),
        ("R@1 among 100 consecutive pictures", "higher"),
        ("R@5 among look-alikes, scorer “second”", "higher"),
        ("mean rank among the 3 pictures in a bag", "lower"),
        ("CIDEr, best caption", "higher"),
        ("CIDEr, the scorer’s choice", "higher"),
        ("CIDEr, the scorer’s choice, scorer “second”", "higher"),
        ("perplexity", None),
    ]
