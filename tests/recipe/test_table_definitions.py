"""Tables of the papers: figures as printed, rows and columns that exist, commands that parse."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
from command_line import Cli

from tellapart.cli.whole_app import whole_app
from tellapart.errors import UsageError
from tellapart.recipe.paper_tables import PAPERS, PaperTable, find_tables, read_paper
from tellapart.recipe.table_figures import figures, logged
from tellapart.recipe.table_plan import Given, make_plan, recipe_of

PAPER_TEXTS = Path(__file__).parents[3] / "shared" / "papers"
TABLES = [pytest.param(paper, table, id=f"{paper.number}:{table.id}") for paper, table in find_tables([])]


def printed_rows(number: int) -> set[tuple[float, ...]]:
    """Every run of figures at the end of a line of the paper's text, improvements in brackets left out."""
    (path,) = PAPER_TEXTS.glob(f"{number}_*.txt")
    text = re.sub(r"\([\d.]+\)|\(rs\)|\(bs\)|\[\d+\]|</?[bi]>|[±✓*]+|\bNA\b", " ", path.read_text(encoding="utf-8"))
    found = set()
    for line in text.splitlines():
        figures: list[float] = []
        for word in reversed(line.split()):
            if not re.fullmatch(r"\d+\.?\d*", word):
                break
            figures.insert(0, float(word))
            found.add(tuple(figures))
    return found


@pytest.mark.skipif(not PAPER_TEXTS.is_dir(), reason=f"no papers at {PAPER_TEXTS}")
@pytest.mark.parametrize("number", PAPERS)
def test_every_row_of_figures_is_printed_by_the_paper(number: int) -> None:
    printed = printed_rows(number)
    figures = {
        (table.id, row.labels): tuple(figure for figure in row.paper if not isinstance(figure, str))
        for table in read_paper(number).tables
        for row in table.rows
    }
    pieces = {key: row for key, row in figures.items() if key[0] in IN_PIECES.get(number, ())}
    assert not [key for key, row in figures.items() if row and row not in printed and key not in pieces]
    (path,) = PAPER_TEXTS.glob(f"{number}_*.txt")
    text = path.read_text(encoding="utf-8")
    numbers = set(map(float, re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d) (?=000\b)", "", text))))
    numbers |= {float(f"{a or 1}e-{b}") for a, b in re.findall(r"(?:(\d) \\cdot )?10\^\{-(\d)\}", text)}
    assert not [key for key, row in pieces.items() if not set(row) <= numbers]


# Tables whose rows here are columns there, or whose figures stand in a text and in other tables.
IN_PIECES = {1: {"F4"}, 2: {"6", "9", "11", "12", "14", "F3", "F4", "F6"}, 3: {"11", "13"}}


@pytest.mark.long
@pytest.mark.parametrize(("paper", "table"), TABLES)
def test_every_command_of_a_table_is_one_that_the_command_line_takes(
    paper: object, table: PaperTable, tmp_path: Path
) -> None:
    plan = make_plan(paper, table, tmp_path)  # type: ignore[arg-type]
    commands = typer.main.get_command(whole_app())
    made = {step.out for step in plan.commands()}
    for step in plan.commands():
        words = shlex.split(step.typed().replace("$TELLAPART_DATA", "DATA"))[1:]
        command = commands.commands[words[0]]  # type: ignore[attr-defined]
        command.make_context(words[0], words[1:])  # raises for an unknown option
        if step.words[0] == "train":
            assert recipe_of(step).name
    for row, column, test in plan.cells("metric", "words"):
        assert plan.result_of(test) in made, (row.labels, column.name)
    assert all(column.source for column in table.columns), "a column that nothing fills"


@pytest.mark.skipif(not PAPER_TEXTS.is_dir(), reason=f"no papers at {PAPER_TEXTS}")
def test_words_are_those_that_the_paper_prints() -> None:
    (path,) = PAPER_TEXTS.glob("3_*.txt")
    printed = path.read_text(encoding="utf-8")
    for table in [table for table in read_paper(3).tables if table.id in ("7", "14")]:
        columns = [str(row.paper[0]).split(", ") for row in table.rows]
        for line in zip(*columns, strict=True):
            assert "\t".join(line) in printed, line


CONCADIA = ("Concadia descriptions", "Concadia captions")


def test_rows_of_one_system_are_all_chosen(tmp_path: Path) -> None:
    for name, rows, labels in (
        ("3:3", ["clipcap-coco"], ["ConCap", "Flickr", "nocaps near", "nocaps out", *CONCADIA]),
        ("1:1", ["human"], ["MSCOCO", "Flickr30K"]),
        ("1:1", ["MSCOCO Human"], ["MSCOCO"]),
    ):  # fmt: skip
        ((paper, table),) = find_tables([name])
        chosen = make_plan(paper, table, tmp_path, rows).rows
        assert [row.labels[0] for row in chosen] == labels


def test_only_what_a_metric_reads_is_asked_for(tmp_path: Path) -> None:
    """Bags stand beside their own metrics alone; a table of lengths takes no list of distractors."""
    for paper, table in find_tables([]):
        plan = make_plan(paper, table, tmp_path)
        for step in plan.commands():
            if step.words[0] == "eval":
                metrics = step.words[step.words.index("--metrics") + 1]
                assert ("--bags" in step.words) == (".bag" in metrics or "imagecode" in metrics), step.typed()
                assert ("--distractors" in step.words) == (".hard" in metrics), step.typed()
    ((paper, table),) = find_tables(["1:F4"])
    assert not any("imgids" in str(path) for path in make_plan(paper, table, tmp_path).needed_files())


def test_columns_that_are_empty_for_one_reason_share_a_line(tmp_path: Path) -> None:
    ((paper, table),) = find_tables(["1:2"])
    (people,) = [note for note in make_plan(paper, table, tmp_path).notes() if "waiting for participants" in note]
    assert people.startswith("Descrip., Acc., F1, Flu.: waiting for participants; run: tellapart study")


def test_boosted_captions_that_lack_an_answer_are_not_taken_for_done(tmp_path: Path) -> None:
    ((paper, table),) = find_tables(["2:F2"])
    (step,) = make_plan(paper, table, tmp_path, (), Given(llm="scripted", mllm="scripted")).commands()
    step.out.parent.mkdir(parents=True)
    step.out.write_text("")
    assert not step.done


def test_every_file_of_the_authors_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that only a recipe reads, or a training of another system that a row starts from."""
    monkeypatch.setenv("TELLAPART_DATA", str(tmp_path / "none"))

    def needed(name: str) -> dict[str, str]:
        ((paper, table),) = find_tables([name])
        found = make_plan(paper, table, tmp_path).needed_files()
        return {path.relative_to(tmp_path / "none").as_posix(): why for path, why in found.items()}

    assert set(needed("2:1")) == {
        "coco/dataset_coco.json", *(f"truematch/{size}.json" for size in (3, 5, 7)),
        *(f"holistic/{split}.jsonl" for split in ("train", "validation", "test")),
    }  # fmt: skip
    assert needed("2:1")["holistic/train.jsonl"] == "tellapart boost, docs/papers.md"
    assert set(needed("1:6")) == {"msrvtt/train_val_videodatainfo.json", "msrvtt/test_videodatainfo.json"}
    assert needed("4:2")["coco/bottomup.h5"] == "features, docs/recurrent.md"
    assert needed("1:10")["coco/dataset_coco_one.json"] == "Karpathy's JSON with splits"


def test_truematch_is_of_validation_and_test_pictures() -> None:
    tests = read_paper(2).tests
    assert {name for name, on in tests.items() if any("truematch" in bags for bags in on.bags)} == {
        "truematch", "truematch-blend", "truematch-holistic"
    }  # fmt: skip
    assert all(on.data.endswith("?split=validation,test") for name, on in tests.items() if name.startswith("truematch"))


def test_systems_of_their_own_have_files_and_runs_of_their_own(tmp_path: Path) -> None:
    """No caption file stands for two rows on one test set; 2:14 trains to its own run, and 2:8 trains paper 3's."""
    for paper, table in find_tables([]):
        cells = [
            (row.system, tuple(row.instead.get(column.test, column.test) for column in table.columns))
            for row in table.rows
        ]
        assert len(set(cells)) == len(cells), (paper.number, table.id)
    plans = {name: make_plan(*find_tables([name])[0], tmp_path) for name in ("2:14", "2:8")}
    commands = {name: [step.typed() for step in plan.commands()] for name, plan in plans.items()}
    for kind in ("coco", "blend", "holistic"):
        (until,) = [line for line in commands["2:14"] if f"paper2-{kind}-sr-l-until --resume" in line]
        assert until.endswith(f"--set validation.until={tmp_path}/runs/paper2-{kind}-sr-v")
    trained = [line for line in commands["2:8"] if f"--out {tmp_path}/runs/paper3-discritune-concap" in line]
    assert trained and not plans["2:8"].missing()


def test_a_setting_of_a_captioner_that_the_user_brings_is_an_empty_cell(tmp_path: Path) -> None:
    ((paper, table),) = find_tables(["2:12"])
    own = Given(captioners={"coco-cider": "RUN"})
    assert figures(make_plan(paper, table, tmp_path, ["coco-cider"]))
    assert figures(make_plan(paper, table, tmp_path, ["coco-cider"], own)) == {}


def test_settings_are_not_checked_for_rows_that_cannot_run(tmp_path: Path) -> None:
    ((paper, table),) = find_tables(["3:10"])
    plan = make_plan(paper, table, tmp_path, (), Given(settings=("objective.beta=0.2",)))
    assert plan.missing() and plan.commands() == []


def test_the_log_of_a_run_that_was_killed_gives_its_whole_lines(tmp_path: Path) -> None:
    assert logged(tmp_path, "recall@1.random") == []
    records = [{"step": 5, "loss": 1.0}]
    records += [{"event": "validation", "step": step, "n": 40, "recall@1.random40": 2.5 * step} for step in (0, 5, 10)]
    lines = [json.dumps(record) for record in records]
    (tmp_path / "log.jsonl").write_text("\n".join(lines)[:-10])
    assert logged(tmp_path, "recall@1.random") == [(0, 0.0), (5, 12.5)]


def test_tables_are_named_by_paper_and_number() -> None:
    named = [(paper.number, table.id) for paper, table in find_tables(["2:5", "3:1-3", "1:F4", "2:5"])]
    assert named == [(2, "5"), (3, "1"), (3, "2"), (3, "3"), (1, "F4")]
    for name, line in {
        "5": r"'5' is not a table; expected PAPER:TABLE, such as 2:5, 3:1-5, 1:F4, or 4 \(all of paper 4\)",
        "4:": "'4:' is not a table",
        "2:99": "paper 2 has no table '99'",
        "2:x": "': cannot parse 'X'; expected a table such as 5",
        "2:5-3": "': cannot parse '5-3'; expected a table such as 5",
    }.items():
        with pytest.raises(UsageError, match=line):
            find_tables([name])


def test_a_dry_run_prints_commands_that_a_shell_takes_and_what_is_missing(cli: Cli) -> None:
    done = cli("tables", "1:1", "--dry-run", "--rows", "blip-smile,capenrich")
    lines = done.out.splitlines()
    assert done.status == 0 and "# rows: capenrich, blip-smile" in lines
    assert any(
        line.startswith("# capenrich needs CapEnrich's captioner") and line.endswith("--captions capenrich=FILE")
        for line in lines
    )
    assert any(line.startswith("# requires ") and "CapEnrich's list of 30,000 picture ids" in line for line in lines)
    train, caption, evaluate, _ = (line for line in lines if line and not line.startswith("#"))
    assert train.startswith("tellapart train papers/smile_blip_coco --out")
    assert "--beams 3 --decoding length_penalty_over=all --max-tokens 71" in caption
    assert '"karpathy:$TELLAPART_DATA/coco/dataset_coco.json?split=test"' in evaluate and "recall@1.hard" in evaluate


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("1:1", "--rows", "blip-smlie"), "table 1:1 has no row 'blip-smlie'; did you mean 'blip-smile'"),
        (("1:1", "--captions", "capenrich=none.jsonl"), "--captions none.jsonl: no such file"),
        (("1:1", "--captions", "capenrich"), "--captions capenrich: expected SYSTEM=…"),
        (("1:1", "--captioner", "capenrih=m:f"), "no row uses the system 'capenrih'; did you mean 'capenrich'?"),
        (("1:1",), "which does not exist; to list all required files, run"),
        (("2:3", "--seeds", "dev"), "--seeds requires --world scenes"),
        (("2:3", "--world", "scenes", "--dry-run"), "require the papers' data"),
        (("3:1", "--world", "scenes"), "table 3:1 has no version on scenes; available: 2:2, 2:3, 2:5, 2:7"),
    ],
)
def test_what_cannot_run_is_one_line(cli: Cli, words: tuple[str, ...], line: str) -> None:
    done = cli("tables", *words)
    assert done.status == 2 and line in done.err and len(done.err.strip().splitlines()) == 1, done.err


@pytest.mark.parametrize("system", [name for name in read_paper(2).systems if name.startswith(("holistic-", "blend-"))])
def test_what_starts_from_boosted_captions_reads_them_too(system: str, tmp_path: Path) -> None:
    """A CIDEr reward, bags and measured CIDEr read references: those of the start's own kind, which are long."""
    paper = read_paper(2)
    kind = system.partition("-")[0]
    assert paper.systems[system].start == kind
    plan = make_plan(paper, paper.tables[0], tmp_path)
    step = plan.source(system).steps[-1]
    recipe = recipe_of(step)
    files = (recipe.data.train, recipe.data.validation, recipe.data.test)
    assert all(str(spec).endswith(f"{kind}/{part}.jsonl") for spec, part in zip(files, PARTS, strict=True)), files
    assert recipe.bags is None or recipe.bags.captions == "references"
    decodings = [recipe.validation.decoding, recipe.evaluation.decoding]
    decodings += [recipe.objective.decoding] if recipe.objective.kind == "reinforce" else []
    assert {decoding.max_tokens for decoding in decodings} == {40}
    assert recipe.captioner is not None
    vision = "vision" in (recipe.captioner.train or ())
    assert recipe.objective.kind != "reinforce" or (recipe.captioner.dropout == 0) == vision


PARTS = ("train", "validation", "test")


def test_epochs_of_the_tables_change_the_cosine_too(tmp_path: Path) -> None:
    for paper, table in find_tables(["1"]):
        for step in make_plan(paper, table, tmp_path).commands():
            if step.words[:2] == ("train", "papers/smile_blip_coco"):
                training = recipe_of(step).training
                assert training.steps == 5 * training.schedule_every, step.typed()
