"""Every table of the papers, end to end, on a miniature of its data in the authors' own layouts."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from command_line import Cli
from paper_world import World

sys.path.append(str(Path(__file__).parent / "evaluation"))

from judge_server import JudgeServer

from tellapart.cli import tables as module
from tellapart.recipe.paper_tables import find_tables, read_paper
from tellapart.recipe.schema import TestSet
from tellapart.recipe.table_plan import Given, Step, eval_options, make_plan
from tellapart.study.store import STORE
from tellapart.utils.recipe_names import fill_in

# What stands for the size of a run; all else is the recipe's.
SMALL = (
    "training.steps=1", "training.batch_size=22", "training.gradient_accumulation_steps=1", "training.warmup=0",
    "training.captions_per_picture=1", "training.checkpoint_every=1", "training.log_every=1", "validation.every=1",
    "validation.limit=6", "evaluation.lookalike=5", "evaluation.gallery=0",
)  # fmt: skip
# 1:7: twelve tokens of 256, because answers of random weights do not end. 1:F3: a validation after each of five epochs,
# among a hundred pictures.
MORE = {
    "1:7": ("validation.decoding.max_tokens=12", "evaluation.decoding.max_tokens=12"),
    "1:F3": ("training.steps=5", "validation.limit=100", "validation.decoding={kind='greedy', max_tokens=3}"),
}
OWN = "my_captioner:make?tokenizer=words&width=16"
CAPTIONERS = {"1:8": "ofa-base", "3:10": "camel"}  # a user's own, in place of a model that transformers does not have
FAST = ("1:7", "2:3", "3:1", "4:4")  # text alone; with bags; across domains; several captions of a picture


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("papers"))
    made.write()
    before = Path.cwd(), os.environ.get("TELLAPART_DATA")
    os.chdir(made.folder)
    os.environ["TELLAPART_DATA"] = str(made.data)
    sys.path.insert(0, str(made.folder))  # where my_captioner.py is
    yield made
    sys.path.remove(str(made.folder))
    os.chdir(before[0])
    os.environ.pop("TELLAPART_DATA")
    if before[1] is not None:
        os.environ["TELLAPART_DATA"] = before[1]


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeServer]:
    def reply(text: str, shown: bool) -> str:
        rated = '{"reference": 8, "candidate": 6, "reason": "shorter"}'
        return "a red circle on grass, and a blue square beside it" if shown or "aption" in text else rated

    with JudgeServer(reply) as server:
        yield server


def models_of(name: str, server: JudgeServer) -> list[str]:
    """The options that name a table's servers and own captioners."""
    backend = f"openai:judge@{server.url}"
    options = {"1:7": [f"--llm-judge={backend}"], "2:F2": [f"--llm={backend}", f"--mllm={backend}"]}.get(name, [])
    return options + ([f"--captioner={CAPTIONERS[name]}={OWN}"] if name in CAPTIONERS else [])


def names() -> list[object]:
    found = [f"{paper.number}:{table.id}" for paper, table in find_tables([])]
    return [pytest.param(name, marks=pytest.mark.long if name in FAST else pytest.mark.slow) for name in found]


@pytest.mark.parametrize("name", names())
def test_a_table_is_one_command(
    name: str, world: World, cli: Cli, judge: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trains, captions and evaluates in this process; each command is the one that ``--dry-run`` prints."""
    ((_, table),) = find_tables([name])
    ran: list[str] = []

    def run(step: Step, place: str, options: Sequence[str]) -> None:
        done = cli(*map(fill_in, step.words), *options)
        assert done.status == 0, f"{step.typed()}\n{done.err[-1500:]}"
        ran.append(step.typed())

    monkeypatch.setattr(module, "run_step", run)
    sizes = [f"--set={setting}" for setting in (*SMALL, *MORE.get(name, ()))] + models_of(name, judge)
    brought = json.loads(cli("tables", name, "--dry-run", "--json", *sizes).out)["tables"][0]["missing"]
    files = [f"--captions={system}={captions_file(world, name, system)}" for system in sorted(brought)]
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
            measured = column.metric != "spice" and not column.study  # nobody has answered yet
            assert (row["ours"][column.name] is not None) == bool(measured), (declared.labels, column.name)
            if not column.metric.startswith("smile_relative."):  # one question of a category has no interval
                assert (row["intervals"][column.name] is not None) == bool(measured and column.metric)
    again = cli("tables", name, "--device", "cpu", *sizes, *files)
    made_again = [command for command in ran[len(left) :] if not command.startswith("tellapart boost ")]
    assert again.status == 0 and not made_again, "only boost runs again, to ask for what is missing"
    assert all(label in again.out for label in table.labels[:1])


@pytest.mark.long
def test_a_bag_with_a_picture_that_cannot_be_read_is_left_out_and_named(world: World, cli: Cli) -> None:
    bag = json.loads((world.data / "truematch" / "3.json").read_text())[0]
    (picture,) = (world.data / "coco").rglob(f"*{bag[0]:012}.jpg")
    captions, whole = captions_file(world, "2:1", "ofa"), picture.read_bytes()
    lines = [line for line in captions.read_text().splitlines() if json.loads(line)["id"] != str(bag[0])]
    captions.write_text("".join(f"{line}\n" for line in lines))  # as `caption` would write it
    picture.write_bytes(b"no picture")
    try:
        words = ("tables", "2:1", "--rows", "ofa", f"--captions=ofa={captions}", "--out", "runs/unreadable")
        plan = make_plan(*find_tables(["2:1"])[0], Path("runs/unreadable"), ["ofa"], Given({"ofa": captions}))
        (step,) = plan.commands()
        done = cli(*map(fill_in, step.words))
        assert done.status == 0, done.err[-800:]
    finally:
        picture.write_bytes(whole)
    note = f"bag3: 1 pictures cannot be read, such as '{bag[0]}'; their sets are omitted (22 sets remain)"
    assert note in " ".join(done.out.split())
    assert "22 sets remain" in " ".join(cli(*words).out.split())


@pytest.mark.long
def test_a_table_of_peoples_answers_reads_the_study_that_it_prepared(world: World, cli: Cli) -> None:
    """The study that 3:6 prepares, answered through its page by scripted participants in place of people."""
    ((paper, table),) = find_tables(["3:6"])
    systems = [row.system for row in table.rows[1:]]
    files = {system: captions_file(world, "3:6", system) for system in systems}
    plan = make_plan(paper, table, Path("runs/people"), given=Given(files))
    (step,) = plan.commands()
    smaller = ["--sets", "4", "--max-cosine", "1", "--candidates", "4", "--controls", "1", "--block", "4"]
    done = cli(*map(fill_in, step.words), *smaller)
    assert done.status == 0, done.err[-800:]
    brought = [f"--captions={system}={file}" for system, file in files.items()]
    words = ("tables", "3:6", "--json", "--out", "runs/people", *brought)
    (before,) = json.loads(cli(*words).out)["tables"]
    assert {row["ours"]["accuracy"] for row in before["rows"]} == {None}
    assert "waiting for participants; run: tellapart study serve" in plan.notes()[0]
    assert cli("study", "simulate", plan.study_folder, "--participants", "6").status == 0
    shutil.copy(plan.study_folder / "simulated" / STORE, plan.study_folder / STORE)
    reported = json.loads(cli("study", "report", plan.study_folder, "--json").out)["systems"]
    (after,) = json.loads(cli(*words).out)["tables"]
    for row in after["rows"]:
        name = "human" if row["system"] == "human" else files[row["system"]].stem
        assert row["ours"]["accuracy"] == reported[name]["accuracy"]["value"]


def captions_file(world: World, name: str, system: str) -> Path:
    """Captions of a system that the user brings, of all pictures that the table's test set may have."""
    from tellapart.data import open_data

    ((paper, table),) = find_tables([name])
    (row,) = [row for row in table.rows if row.system == system][:1]
    tests = [row.instead.get(column.test, column.test) for column in table.columns if column.test]
    test = max(tests, key=lambda name: len(open_data(fill_in(paper.tests[name].data))))  # TrueMatch has more pictures
    path = world.folder / f"{test}-{system}.jsonl"
    items = [item for item in open_data(fill_in(paper.tests[test].data)) if item.references]
    several = any(column.metric in ("div1", "div2", "mbleu") for column in table.columns)  # of samples of a picture
    texts = [{"captions": item.references} if several else {"caption": item.references[0]} for item in items]
    lines = [json.dumps({"id": item.id} | text) for item, text in zip(items, texts, strict=True)]
    path.write_text("".join(f"{line}\n" for line in lines) or "\n")
    return path


@pytest.mark.long
def test_the_commands_of_every_table_are_printed_in_lines_that_a_shell_takes(cli: Cli) -> None:
    printed = cli("tables", "--dry-run").out
    for paper, table in find_tables([]):
        assert f"# Table {paper.number}:{table.id}, {table.title}" in printed
    commands = [line for line in printed.splitlines() if not line.startswith("#") and line.strip()]
    assert {shlex.split(line, comments=True)[1] for line in commands} >= {"train", "caption", "eval", "study", "report"}
    evaluated = {line.split("--data ")[1].split(" -")[0] for line in commands if " eval " in line}
    assert any("vicuna" in data for data in evaluated) and any("imagecode" in data for data in evaluated)


@pytest.mark.long
def test_a_run_measures_further_test_sets_as_the_tables_do(world: World, cli: Cli) -> None:
    """TrueMatch, RD100, ImageCoDe, nocaps, Flickr30k, Concadia and a hard pool, of one recipe's own evaluation."""
    named = {
        "truematch": "2:truematch", "rd100": "2:coco", "imagecode": "3:imagecode", "nocaps": "3:nocaps-near",
        "flickr30k": "3:flickr30k",
        "concadia": "3:concadia-descriptions", "pool": "1:coco",
    }  # fmt: skip
    own = "{data='nocaps:$TELLAPART_DATA/nocaps/nocaps_val_4500_captions.json?domain=out', max_tokens=3}"
    settings = ["captioner.name=coco_weights.pt?language_model=gpt2", *SMALL, "evaluation.decoding.max_tokens=12"]
    settings += [f"evaluation.test_sets.{name}={test}" for name, test in (named | {"own": own}).items()]
    train = ("train", "papers/sr_l_coco", "--out", "runs/wide", *(f"--set={setting}" for setting in settings))
    done = cli(*train, "--json")
    assert done.status == 0, done.err[-1500:]
    found = json.loads(done.out)
    assert found == json.loads(Path("runs/wide/results.json").read_text())
    assert set(found["test_sets"]) == {*named, "own"}
    for name, test in named.items():
        number, _, key = test.partition(":")
        columns = {
            column.metric
            for _, table in find_tables([number])
            for column in table.columns
            if column.test == key
            and column.metric
            and not column.metric.startswith(("spice", "div", "mbleu", "tokens"))
            and not column.metric.endswith("-shuffled")  # computed where it is named
        }
        assert columns, test
        for system in ("before", "after"):
            assert columns <= set(found["test_sets"][name]["systems"][system]), name
        lines = Path(f"runs/wide/captions/{name}/after.jsonl").read_text().splitlines()
        count = {"imagecode": 12, "truematch": 105 + 24}.get(name, 105)
        assert len(lines) == found["test_sets"][name]["pictures"]["n"] == count
    assert found["test_sets"]["pool"]["candidates"]["recall@1.hard"]["most"] == 105 + 24
    assert found["test_sets"]["imagecode"]["candidates"]["recall@1.imagecode"]["most"] == 10
    longest = max(
        len(json.loads(line)["caption"].split())
        for line in Path("runs/wide/captions/own/after.jsonl").read_text().splitlines()
    )
    assert longest <= 3
    # The same captions through `eval` give the same figures.
    captions = ("--captions", "runs/wide/captions/imagecode/before.jsonl")
    captions += ("--captions", "runs/wide/captions/imagecode/after.jsonl", "--set", "lookalike=5", "--human", "mean")
    imagecode = paper_test("3:imagecode")
    options = eval_options(imagecode, ("recall@1.hard", "ppl"))
    again = cli("eval", "--data", fill_in(imagecode.data), *captions, "--scorer", "openai/clip-vit-base-patch32",
                "--metrics", "all", "--allow-missing", *map(fill_in, options), "--json")  # fmt: skip
    assert again.status == 0, again.err[-1500:]
    systems = json.loads(again.out)["systems"]
    for system, measured in found["test_sets"]["imagecode"]["systems"].items():  # `all` measures more than a run does
        assert measured and measured == {metric: systems[system][metric] for metric in measured}
    shown = cli("report", "runs/wide").out.strip()
    page = Path(shown).read_text()
    assert all(f"Results on <bdi>{name}</bdi>" in page for name in found["test_sets"])
    again = cli(*train)
    assert again.status == 0 and "truematch: 129 pictures" in again.out


def paper_test(name: str) -> TestSet:
    number, _, key = name.partition(":")
    return read_paper(int(number)).tests[key]


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["x=2:cocoo"], ": paper 2 has no test set 'cocoo'; did you mean 'coco'?; known: coco, truematch"),
        (
            ["x=photos"],
            ": evaluation.test_sets.x is 'photos'; expected a table with data = 'kind:path', or PAPER:NAME for a",
        ),
        (["x={data='folder:photos', bgas=[]}"], "unknown key 'evaluation.test_sets.x.bgas'; did you mean 'bags'?"),
        (["x={bags=['3.json']}"], "'evaluation.test_sets.x.data' is missing; add it to the recipe or"),
        (["x={data=7}"], "evaluation.test_sets.x.data must be a valid string; found 7"),
        (
            ["a/b={data='folder:photos'}"],
            "'a/b' is not a valid name because it becomes a folder name; use letters, digits",
        ),
        (
            ["x={data='scenes:plain?n=20', bags=['none.json']}"],
            "evaluation.test_sets.x: none.json does not exist; expected",
        ),
        (
            ["x={data='scenes:plain?n=20', needs={'none.json'='make it'}}"],
            "evaluation.test_sets.x requires none.json (make it), which does not exist",
        ),
        (
            ["x={data='scenes:plain?n=20', bags=['$TELLAPART_DATA/truematch/3.json']}"],
            "evaluation.test_sets.x: bag3: 69 of 69 target pictures have no caption or are not in the data,",
        ),
    ],
)
def test_a_test_set_that_cannot_be_measured_is_told_before_training(
    settings: list[str], told: str, world: World, cli: Cli, tmp_path: Path
) -> None:
    sets = [f"--set=evaluation.test_sets.{setting}" for setting in settings]
    start = "--set=captioner.name=coco_weights.pt?language_model=gpt2"
    done = cli("train", "papers/sr_l_coco", "--out", tmp_path / "run", start, *sets)
    assert done.status == 2 and told in done.err, done.err
    assert len([line for line in done.err.splitlines() if line.startswith("error")]) <= 1
    assert not (tmp_path / "run" / "run.json").exists()
