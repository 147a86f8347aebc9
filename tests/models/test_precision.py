"""Names of devices and precisions, and what `auto` is on hardware that multiplies in bfloat16."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Cli
from tiny_blip import save_blip

from tellapart.captioners import load_captioner
from tellapart.captions.provenance import Provenance
from tellapart.errors import UsageError
from tellapart.models import precision as precisions
from tellapart.models.decoding import Decoding
from tellapart.models.devices import resolve_device, running_on
from tellapart.models.precision import exact_precision, precision_of, resolve_precision
from tellapart.recipe.reading import check_recipe
from tellapart.scorers import load_scorer
from tellapart.training.fingerprint import content_of

CPU = torch.device("cpu")
WORDS = ["a", "red", "dog", "on", "the", "grass"]


@pytest.fixture
def fast_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that multiplies in bfloat16."""
    monkeypatch.setattr(precisions, "multiplies_in_bf16", lambda device: True)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)


def test_names_lead_to_devices(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_device() == resolve_device("cuda") == torch.device("cuda")
    assert resolve_device("cuda:1") == torch.device("cuda", 1) and resolve_device("cpu") == CPU
    with pytest.raises(UsageError, match="this machine has 2 such devices, numbered from cuda:0; use --device cuda"):
        resolve_device("cuda:2")
    with pytest.raises(UsageError, match="' is not available: torch finds cpu and cuda on this machine; use"):
        resolve_device("mps")
    with pytest.raises(UsageError, match="unknown device 'gpu'; expected auto, cpu, cuda, cuda:1 or mps"):
        resolve_device("gpu")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(UsageError, match="device 'cuda' is not available: torch finds only cpu"):
        resolve_device("cuda")


def test_auto_is_the_device_that_was_chosen_for_the_moment(two_gpus: None) -> None:
    with running_on("cuda:1"):
        assert resolve_device("auto") == torch.device("cuda", 1)
        with running_on("auto"):
            assert resolve_device("auto") == torch.device("cuda", 1)
    assert resolve_device("auto") == torch.device("cuda")


def test_names_lead_to_precisions(fast_bf16: None) -> None:
    assert resolve_precision("auto", CPU) == "bf16" and resolve_precision("fp32", CPU) == "fp32"
    assert exact_precision("auto", CPU) == "fp32" and exact_precision("bf16", CPU) == "bf16"
    assert resolve_precision("fp16", torch.device("cuda")) == "fp16"
    with pytest.raises(UsageError, match="fp16 is slower than fp32 on a CPU; use --precision bf16"):
        resolve_precision("fp16", CPU)
    with pytest.raises(UsageError, match="unknown precision 'bfloat16'; did you mean"):
        resolve_precision("bfloat16", CPU)


def test_a_captioner_loads_in_bf16_and_a_scorer_in_fp32(fast_bf16: None, tmp_path: Path, tiny_scorer: Path) -> None:
    captioner = load_captioner(str(save_blip(tmp_path, WORDS)))
    assert precision_of(captioner.model) == "bf16"
    assert not any(parameter.requires_grad for parameter in captioner.model.parameters()), "small updates get lost"
    assert precision_of(load_scorer(str(tiny_scorer)).model) == "fp32"
    trained = load_captioner(str(tmp_path), precision="fp32")
    assert precision_of(trained.model) == "fp32" and all(p.requires_grad for p in trained.model.parameters())


def test_features_in_bf16_have_a_key_of_their_own(tiny_scorer: Path) -> None:
    from PIL import Image

    exact, short = load_scorer(str(tiny_scorer)), load_scorer(str(tiny_scorer), precision="bf16")
    assert exact.fingerprint != short.fingerprint, "the stores of both would mix"
    picture = Image.effect_noise((48, 32), 60).convert("RGB")
    one, two = (scorer.image_features(scorer.pixels([picture])) for scorer in (exact, short))
    assert one.dtype == two.dtype == torch.float32
    assert 0 < float((one - two).abs().max()) < 0.05
    assert float((exact.text_features(["a red dog"]) - short.text_features(["a red dog"])).abs().max()) < 0.05


def test_a_recipe_of_auto_precision_has_the_fingerprint_of_what_it_is_here(
    tiny_recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fingerprint(precision: str | None) -> str:
        more = {} if precision is None else {"precision": precision}
        return content_of(
            check_recipe({**tiny_recipe, "training": {**tiny_recipe["training"], **more}}, "test")
        ).fingerprint

    assert fingerprint("auto") == fingerprint("fp32") == fingerprint(None) != fingerprint("bf16")
    monkeypatch.setattr(precisions, "multiplies_in_bf16", lambda device: True)
    monkeypatch.setattr("tellapart.models.precision.multiplies_in_bf16", lambda device: True)
    assert fingerprint("auto") == fingerprint("bf16") != fingerprint(None)


def test_captions_say_what_they_ran_on_and_go_on_in_that_precision(
    cli: Cli, fast_bf16: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blip").mkdir()
    model, data, out = save_blip(tmp_path / "blip", WORDS), "scenes:plain?n=6&split=test", tmp_path / "c.jsonl"
    command = ("caption", model, data, "-o", out, "--max-tokens", 4, "--beams", 1)
    done = cli(*command)
    assert done.status == 0, done.err
    written = Provenance.open(out).settings
    assert written is not None
    assert (written["precision"], written["device"]) == ("bf16", "cpu")
    monkeypatch.setattr(precisions, "multiplies_in_bf16", lambda device: False)
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:3]))
    done = cli(*command)
    assert done.status == 0 and "3 captions written, 3 already done" in done.err, done.err
    assert out.read_text().splitlines(keepends=True) == lines
    done = cli(*command, "--precision", "fp32")
    assert done.status == 2 and "was started with a different captioner_weights, precision" in done.err, done.err


def test_every_command_that_runs_a_model_takes_both_options(cli: Cli) -> None:
    commands = ("caption", "eval", "bags mine", "bags build", "bags pool", "bags card", "boost", "tables")
    for command in (*commands, "demo", "train", "finetune"):
        help_text = cli(*command.split(), "--help").out
        assert "--device" in help_text and "--precision" in help_text, command


def test_options_that_would_have_no_effect_are_refused(cli: Cli, tmp_path: Path) -> None:
    captions = tmp_path / "a.jsonl"
    captions.write_text('{"id": "1", "caption": "a dog"}\n')
    done = cli("eval", "--captions", captions, "--metrics", "length", "--device", "cpu")
    assert done.status == 2 and "--device and --precision require a model; add --scorer MODEL" in done.err
    done = cli("boost", "scenes:plain?n=4", "--llm", "scripted", "--precision", "bf16", "-o", tmp_path / "b.jsonl")
    assert done.status == 2 and "require a local model" in done.err
    done = cli("train", "scenes_smile", "--precision", "fp16")
    assert done.status == 2 and "use --precision bf16" in done.err
    done = cli("caption", "scenes", "scenes:plain?n=4", "-o", tmp_path / "c.jsonl", "--device", "cuda:9")
    assert (
        done.status == 2 and "torch finds only cpu" in done.err
    ) or ", numbered from cuda:0; use --device cuda" in done.err


def test_eval_says_what_measured(cli: Cli, tmp_path: Path, tiny_scorer: Path) -> None:
    captions = tmp_path / "a.jsonl"
    scenes = "scenes:plain?n=4&split=test"
    assert cli("caption", "scenes", scenes, "-o", captions, "--beams", 1).status == 0
    measure = ("eval", "--captions", captions, "--data", scenes, "--scorer", tiny_scorer, "--metrics", "clipscore")
    found = [json.loads(cli(*measure, "--json", *more).out) for more in ((), ("--precision", "bf16"))]
    assert [one["hardware"]["precision"] for one in found] == ["fp32", "bf16"]
    assert found[0]["signatures"] != found[1]["signatures"]


@pytest.mark.parametrize("kind", ["greedy", "sample", "beam"])
def test_a_captioner_writes_in_bf16(kind: Any, tmp_path: Path) -> None:
    from PIL import Image

    captioner = load_captioner(str(save_blip(tmp_path, WORDS)), precision="bf16")
    pixels = captioner.pixels([Image.effect_noise((48, 32), 60).convert("RGB")] * 2)
    visual = captioner.encode(pixels)
    assert visual.dtype == torch.bfloat16
    assert (
        len(
            captioner.generate(
                visual, Decoding(kind=kind, max_tokens=5, **({"beams": 3} if kind == "beam" else {}))
            ).texts
        )
        == 2
    )
