"""Every table of the papers, end to end, on a miniature of its data in the authors' own layouts."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from command_line import Cli
from paper_world import World

sys.path.append(str(Path(__file__).parent / "evaluation"))

from judge_server import JudgeServer

from tellapart.cli import tables as module
from tellapart.recipe.tables import Step, find_tables
from tellapart.utils.options import fill_in

# What stands for the size of a run; all else is the recipe's.
SMALL = (
    "training.steps=1", "training.batch_size=22", "training.gradient_accumulation_steps=1", "training.warmup=0",
    "training.captions_per_picture=1", "training.checkpoint_every=1", "training.log_every=1", "validation.every=1",
    "validation.limit=6", "evaluation.lookalike=5", "evaluation.gallery=0",
)  # fmt: skip
# A validation after each of five epochs, among a hundred pictures.
MORE = {
    "1:F3": ("training.steps=5", "validation.limit=100", "validation.decoding={kind='greedy', max_tokens=3}"),
}
FAST = ("1:7", "2:3", "3:1", "4:4")  # text alone; with bags; across domains; several captions of a picture


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("papers"))
    made.write()
    before = Path.cwd(), os.environ.get("TELLAPART_DATA")
    os.chdir(made.folder)
    os.environ["TELLAPART_DATA"] = str(made.data)
    yield made
    os.chdir(before[0])
    os.environ.pop("TELLAPART_DATA")
    if before[1] is not None:
        os.environ["TELLAPART_DATA"] = before[1]


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeServer]:
    with JudgeServer(lambda text, shown: '{"reference": 8, "candidate": 6, "reason": "shorter"}') as server:
        yield server


def names() -> list[object]:
    found = [f"{paper.number}:{table.id}" for paper, table in find_tables([])]
    return [pytest.param(name, marks=pytest.mark.long if name in FAST else pytest.mark.slow) for name in found]


@pytest.mark.parametrize("name", names())
def test_a_table_is_one_command(
    name: str, world: World, cli: Cli, judge: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trains, captions and evaluates in this process; each command is the one that ``--dry-run`` prints."""
    ((paper, table),) = find_tables([name])
    ran: list[str] = []

    def run(step: Step, place: str, options: Sequence[str]) -> None:
        step.make_folder()
        # A model of random weights may end a caption at once; eval refuses empty captions without --allow-missing.
        missing = ["--allow-missing"] if step.words[0] == "eval" and "--allow-missing" not in step.words else []
        done = cli(*map(fill_in, step.words), *options, *missing)
        assert done.status == 0, f"{step.typed()}\n{done.err[-1500:]}"
        ran.append(step.typed())

    monkeypatch.setattr(module, "run_step", run)
    rows = {row.system for row in table.rows}
    brought = {system for system in rows if paper.systems[system].file}
    files = [f"--captions={system}={captions_file(world, name, system)}" for system in sorted(brought)]
    sizes = [f"--set={setting}" for setting in (*SMALL, *MORE.get(name, ()))]
    if name == "1:7":
        sizes.append(f"--llm-judge=openai:judge@{judge.url}")
    planned = json.loads(cli("tables", name, "--dry-run", "--json", *sizes, *files).out)["tables"][0]
    assert not planned["needs"] and not planned["missing"]
    done = cli("tables", name, "--json", "--device", "cpu", *sizes, *files)
    assert done.status == 0, done.err[-1500:]
    (shown,) = json.loads(done.out)["tables"]
    left = [each["command"] for each in planned["commands"] if not each["done"]]
    assert ran == left
    assert [tuple(row["labels"].values()) for row in shown["rows"]] == [row.labels for row in table.rows]
    for row, declared in zip(shown["rows"], table.rows, strict=True):
        assert list(row["paper"].values()) == [None if figure == "" else figure for figure in declared.paper]
        for column in table.columns:
            measured = column.setting or column.log or (column.metric and column.metric != "spice")
            assert (row["ours"][column.name] is not None) == bool(measured), (declared.labels, column.name)
    again = cli("tables", name, "--device", "cpu", *sizes, *files)
    assert again.status == 0 and len(ran) == len(left), "what is there is not made again"
    assert all(label in again.out for label in table.labels[:1])


def captions_file(world: World, name: str, system: str) -> Path:
    """Captions of a system that the user brings, of all pictures that the table's test set may have."""
    from tellapart.data import open_data

    ((paper, table),) = find_tables([name])
    (row,) = [row for row in table.rows if row.system == system][:1]
    (test,) = {row.instead.get(column.test, column.test) for column in table.columns if column.metric} or {""}
    path = world.folder / f"{test or 'none'}-{system}.jsonl"
    items = [item for item in (open_data(fill_in(paper.tests[test].data)) if test else []) if item.references]
    several = any(column.metric in ("div1", "div2", "mbleu") for column in table.columns)  # of samples of a picture
    texts = [{"captions": item.references} if several else {"caption": item.references[0]} for item in items]
    lines = [json.dumps({"id": item.id} | text) for item, text in zip(items, texts, strict=True)]
    path.write_text("".join(f"{line}\n" for line in lines) or "\n")
    return path


def test_the_commands_of_every_table_are_printed_in_lines_that_a_shell_takes(cli: Cli) -> None:
    printed = cli("tables", "--dry-run").out
    for paper, table in find_tables([]):
        assert f"# Table {paper.number}:{table.id}, {table.title}" in printed
    commands = [line for line in printed.splitlines() if not line.startswith("#") and line.strip()]
    assert {shlex.split(line, comments=True)[1] for line in commands} == {"train", "caption", "eval"}
    evaluated = {line.split("--data ")[1].split(" -")[0] for line in commands if " eval " in line}
    assert any("vicuna" in data for data in evaluated) and any("imagecode" in data for data in evaluated)
