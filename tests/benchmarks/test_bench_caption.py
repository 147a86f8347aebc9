"""`python -m benchmarks caption`: both sides write the same captions; its rows and its refusals."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from command_line import Cli
from real_data import DATA

from benchmarks import run_bench
from benchmarks.caption import DECODINGS, Sides, parts_of, photos
from benchmarks.caption_chat import ChatSides, check_captions
from benchmarks.caption_models import MODELS, Model, blip, qwen2_vl, smolvlm
from benchmarks.caption_ours import Ours, dataset_of
from benchmarks.caption_theirs import Loop
from benchmarks.process import worker
from benchmarks.rows import PairedRow
from tellapart.errors import TellapartError, UsageError
from tellapart.inference.caption import caption_pictures
from tellapart.models.decoding import Decoding

TEXT = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT |= {"vocab_size": 1100, "max_position_embeddings": 1024}
ROPE = {"rope_type": "default", "rope_theta": 1e6}
TINY = {  # the same layouts as `MODELS`
    "BLIP": partial(
        blip,
        text=TEXT | {"num_hidden_layers": 1, "encoder_hidden_size": 64},
        vision={"image_size": 32, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
        | {"num_attention_heads": 2},
    ),
    "Qwen2-VL": partial(
        qwen2_vl,
        text=TEXT | {"num_key_value_heads": 1, "rope_parameters": ROPE | {"mrope_section": [4, 6, 6]}},
        vision={"depth": 1, "embed_dim": 64, "num_heads": 2, "hidden_size": 64},
    ),
    "SmolVLM": partial(
        smolvlm,
        text=TEXT | {"num_key_value_heads": 1, "rope_parameters": ROPE},
        vision={"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
        | {"image_size": 64, "patch_size": 8},
        longest_edge=128,
    ),
}


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLAPART_DATA", str(DATA))


@pytest.fixture
def tiny(data: None, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {name: Model(write, name != "BLIP", 4, 4) for name, write in TINY.items()}
    monkeypatch.setattr("benchmarks.caption.MODELS", models)


@pytest.mark.data
def test_a_captioner_is_compared_with_three_ways_of_transformers(cli: Cli, tiny: None) -> None:
    """In fp32; `measure` refuses rows whose captions differ."""
    command = ("caption", "--only", "BLIP, greedy", "--pictures", 4, "--repeat", 2)
    done = cli(*command, "--device", "cpu", "--json", package="benchmarks.__main__")
    assert done.status == 0, done.err
    rows = json.loads(done.out)["rows"]
    ours = "BLIP, greedy, 4 photos, ours in fp32"
    ways = ("pipeline", "pipeline, batch_size=16", "loop over batches")
    assert [row["work"] for row in rows] == [f"{ours}, {way} in fp32" for way in ways]
    assert all(row["unit"] == "s" and row["ours"] > 0 and row["ratio"] > 0 for row in rows)
    assert "cannot be measured here" in done.err  # see `auto_is_fp32`


@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize(("model", "precision"), [("Qwen2-VL", "fp32"), ("SmolVLM", "bf16")])
def test_a_vision_language_model_is_compared_in_time_and_memory(
    cli: Cli, tiny: None, model: str, precision: str
) -> None:
    """Each side has a process of its own."""
    command = ("caption", "--only", f"{model}, greedy", "--precision", precision, "--repeat", 2, "--device", "cpu")
    done = cli(*command, "--json", package="benchmarks.__main__")
    assert done.status == 0, done.err
    seconds, memory = json.loads(done.out)["rows"]
    work = f"{model}, greedy, 4 photos, both in {precision}"
    assert (seconds["work"], seconds["unit"]) == (f"{work}, per photo", "s")
    assert (memory["work"], memory["unit"]) == (f"{work}, peak memory", "GB")
    assert seconds["ours"] > 0 and seconds["theirs"] > 0
    assert 0.2 < memory["ours"] < 2 and 0.2 < memory["theirs"] < 2  # GB of Python, torch and transformers
    assert f"{work}: " in done.err and "% of the captions are equal" in done.err


@pytest.mark.data
@pytest.mark.parametrize("model", ["Qwen2-VL", "SmolVLM"])
def test_both_sides_write_the_same_words_which_depend_on_the_photo(tmp_path: Path, data: None, model: str) -> None:
    folder, decoding = TINY[model](tmp_path / "model"), DECODINGS["greedy"]
    some = photos()[:4]
    ours = Ours(folder, "prompt=a photo of", decoding, "cpu", "fp32", 16)(some)
    assert ours == Loop.load(folder, decoding, "cpu", "fp32")(some)
    assert len(set(ours)) > 1 and all(len(caption.split()) == 20 for caption in ours)


@pytest.mark.data
def test_ctrl_c_keeps_the_parts_that_all_sides_have_done(
    tmp_path: Path, data: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C in the second part: the first one makes the rows. What is done once is shared out among all photos."""
    sides = Sides(TINY["BLIP"](tmp_path / "model"), DECODINGS["greedy"], "cpu", ("fp32",))
    loop, calls = sides.theirs["loop over batches"], []

    def interrupted(paths: Sequence[Path]) -> list[str]:
        calls.append(len(paths))
        if len(calls) == 3:  # before: two photos to load, and the first part
            raise KeyboardInterrupt
        return loop(paths)

    sides.theirs["loop over batches"] = interrupted
    rows, stopped = sides.measure("tiny", parts_of(photos(), 6, 3))
    assert stopped and calls == [2, 2, 2] and len(rows) == 3
    assert all(len(row.ours_R) == len(row.theirs_R) == 1 and row.ratio for row in rows)
    assert "tiny: stopped after 1 of 3 parts" in capsys.readouterr().err
    assert sides.ours["fp32"].once() > 0


@pytest.mark.data
def test_ctrl_c_keeps_the_parts_that_both_processes_have_done(
    data: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without memory, which is only known at the end of a process; it answers here without a model."""
    script = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    paths = json.loads(line)\n"
        "    answer = {'captions': paths, 'seconds': 6.0, 'once': 12.0, 'gpu_gb': None}\n"
        "    print(json.dumps(answer), flush=True)\n"
    )
    monkeypatch.setattr("benchmarks.caption_worker.Work.command", lambda self: [sys.executable, "-c", script])
    sides = ChatSides(Path("model"), DECODINGS["greedy"], "cpu", ("fp32", "bf16"))
    parts = parts_of(photos(), 6, 3)
    rows, stopped = sides.measure("m", parts)
    assert not stopped and [row.unit for row in rows] == ["s", "GB"] * 2
    assert rows[0].ours_R == [6.0 / 2 + 12.0 / 6] * 3  # what is done once is shared out among six photos

    asked = []

    def interrupted(self: object, question: list[str]) -> dict[str, object]:
        asked.append(question)
        if len(asked) == 6:  # before: two photos each to load, a part each, and a part of one
            raise KeyboardInterrupt
        return {"captions": question, "seconds": 1.0, "once": 0.0, "gpu_gb": None}

    monkeypatch.setattr("benchmarks.process.Worker.ask", interrupted)
    rows, stopped = sides.measure("m", parts)
    assert stopped and [row.unit for row in rows] == ["s"] and len(rows[0].ours_R) == 1
    assert "m, both in fp32: stopped after 1 of 3 parts" in capsys.readouterr().err


def test_different_captions_in_fp32_are_refused() -> None:
    check_captions("work", ["a"] * 10, ["a"] * 9 + ["b"], "loop")
    with pytest.raises(TellapartError, match="work: 80% of the captions equal those of the loop; expected 90%"):
        check_captions("work", ["a"] * 10, ["a"] * 8 + ["b"] * 2, "loop")


def test_a_process_that_ends_without_an_answer_is_an_error() -> None:
    with worker([sys.executable, "-c", "input(); raise SystemExit('no model')"]) as process:
        with pytest.raises(TellapartError, match="failed with status 1: no model"):
            process.ask(["photo.jpg"])
        with pytest.raises(TellapartError, match="failed with status 1: no model"):
            process.ask(["photo.jpg"])
    with worker([sys.executable, "-c", "input()"]) as process, pytest.raises(TellapartError, match="without an answer"):
        process.ask([])


@pytest.mark.data
def test_our_side_is_what_the_verb_writes(tmp_path: Path, data: None) -> None:
    ours = Ours(TINY["Qwen2-VL"](tmp_path / "model"), "prompt=a", Decoding(max_tokens=4), "cpu", "fp32")
    some, out = photos()[:3], tmp_path / "captions.jsonl"
    caption_pictures(ours.captioner, dataset_of(some), out, decoding=ours.decoding, progress=False)
    assert ours(some) == [json.loads(line)["caption"] for line in out.read_text().splitlines()]


@pytest.mark.data
def test_by_default_the_rows_that_end_within_minutes(data: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy captions of a few photos in two parts; --only, --pictures and --full choose among all rows."""
    models = {name: replace(model, write=lambda folder: folder) for name, model in MODELS.items()}
    monkeypatch.setattr("benchmarks.caption.MODELS", models)
    asked: dict[str, list[int]] = {}

    def measure(self: object, work: str, parts: Sequence[Sequence[Path]]) -> tuple[list[PairedRow], bool]:
        asked[work] = [len(part) for part in parts]
        return [], False

    monkeypatch.setattr(Sides, "measure", measure)
    monkeypatch.setattr(ChatSides, "measure", measure)
    run_bench("caption", device="cpu")
    assert asked == {
        "BLIP-base, greedy, 16 photos": [8, 8],
        "Qwen2-VL-0.5B, greedy, 8 photos": [4, 4],
        "SmolVLM-256M, one tile, greedy, 8 photos": [4, 4],
    }
    asked.clear()
    run_bench("caption", 4, "BLIP-base, 5 beams", device="cpu")
    run_bench("caption", 4, "SmolVLM-256M, greedy", device="cpu", pictures=8)
    assert asked == {"BLIP-base, 5 beams, 200 photos": [50] * 4, "SmolVLM-256M, greedy, 8 photos": [2] * 4}
    asked.clear()
    run_bench("caption", 2, device="cpu", full=True)
    assert len(asked) == 2 * len(MODELS) and asked["SmolVLM-256M, 5 beams, 16 photos"] == [8, 8]


@pytest.mark.gpu
@pytest.mark.data
def test_captioning_on_a_gpu_is_three_times_as_fast_as_the_pipeline_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLAPART_DATA", str(DATA))
    rows = run_bench("caption", 3, "BLIP-base, greedy", device="cuda", precision="bf16")
    (row,) = [row for row in rows if "batch_size=16" in row.work]
    assert row.goal == 3.0 and row.met


def test_the_ratio_is_the_median_of_the_ratios_of_parts() -> None:
    row = PairedRow("work", [1.0, 10.0, 2.0], [3.0, 20.0, 2.0], 1.5, "s")
    assert (row.ours, row.theirs, row.ratio, row.met) == (2.0, 3.0, 2.0, True)


def test_parts_share_no_photo() -> None:
    paths = [Path(f"{number}.jpg") for number in range(11)]
    parts = parts_of(paths, 10, 5)
    assert [path for part in parts for path in part] == paths[:10] and {len(part) for part in parts} == {2}
    for pictures in (4, 12):
        with pytest.raises(UsageError, match=rf"--pictures {pictures}: expected between 5 \(one per part\) and 11"):
            parts_of(paths, pictures, 5)


def test_options_of_one_benchmark_are_refused_by_others(cli: Cli) -> None:
    done = cli("smile", "--pictures", 4, package="benchmarks.__main__")
    assert done.status == 2 and "smile has no option --pictures; remove it" in done.err
    done = cli("caption", "--only", "flamingo", package="benchmarks.__main__")
    assert done.status == 2 and "no row contains 'flamingo'; available: BLIP-base, greedy" in done.err
