"""Gets a model ready: finds it by name, checks and hashes what is loaded, puts it on a device in a precision.

A name is a folder, a finished run, a model of the hub, or ``scenes``. Whether the hub has a model of that name is asked
once, before anything is downloaded. Beside a captioner lie its options and its settings of generation (`Decoding`),
which a recipe's ``decoding`` and the options of ``tellapart caption`` say, too.

The device ``auto`` is the accelerator that torch finds, else the CPU; the precision ``auto`` is, for inference,
bfloat16 where that device multiplies in it, else float32. `docs/devices.md` has the table of what each command does.

On a CPU large models multiply by oneDNN, in training too (`speed_up`): torch multiplies fp32 by MKL, which takes its
slower path on CPUs that are not Intel's. `packed_linears` multiplies from weights that it has arranged once: torch
arranges bf16 weights anew at every call, which costs more than multiplying a few rows. The results are the same but for
rounding.
"""

from __future__ import annotations

import difflib
import functools
import gc
import hashlib
import json
import logging
import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.models.packages import PARTS, packaged_folder
from tellapart.utils.io import check_sums, parse_json, say, say_once, sha256
from tellapart.utils.registry import LazyModule
from tellapart.utils.rng import ItemSeeds

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from transformers import pytorch_utils

    from tellapart.types import Item
else:
    torch, F = LazyModule("torch"), LazyModule("torch.nn.functional")
    pytorch_utils = LazyModule("transformers.pytorch_utils")


OPTIONS_FILE = "tellapart.json"  # beside a captioner's config.json: its options, generation settings and levels
Levels = tuple[tuple[float, str], ...]  # amounts of detail, 0 to 1, each with the prompt that asks for it
SECONDS = 10.0  # for the one question
RUNS = Path("runs")
OWN = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4")
SHIPPED = "captioner", "scorer"  # kinds of which one ships with the package


def check_name(name: str, kind: str) -> None:
    """Raise where ``name`` is no folder, and no model of the hub either; ``kind`` is what it should be.

    Raises too where its configuration would have transformers load code (`check_attention`).

    One attempt, without retries. A model in the hub's cache passes where the hub cannot be reached. `UsageError` for
    what looks like a path, `TellapartError` for the rest: one line, near folder names first.
    """
    if Path(name).expanduser().is_dir():
        check_attention(name, Path(name).expanduser() / "config.json")
        return
    near = similar_folders(name)
    if "/" in name and Path(name.split("/")[0]).is_dir():
        expected = "a folder, a run, a hub name, or 'scenes'" if kind in SHIPPED else "a folder or a hub name"
        raise UsageError(f"no such model folder: {name}{near}; expected {expected}")
    if (why := missing_on_hub(name)) is not None:
        raise TellapartError(f"cannot load {name}: there is no such folder{near}, and {why}; expected a {kind}")
    from transformers.utils.hub import cached_file

    found = cached_file(name, "config.json", _raise_exceptions_for_connection_errors=False)
    if found is not None:
        check_attention(name, Path(found))


def is_server(name: str) -> bool:
    """Returns whether a captioner's name is that of a model behind a server."""
    return name.startswith("openai:")


def check_attention(name: str, config: Path) -> None:
    """Raises `TellapartError` where a model's configuration names an implementation that is not transformers' own.

    Transformers would load such a kernel from the hub, as code. Raises too for sizes that no model has: transformers
    would leave weights out in silence, or build layers for hours.
    """
    try:
        content = parse_json(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # whoever loads it says so
    if isinstance(content, dict) and "configuration_files" in content:  # transformers would read one of those instead
        raise TellapartError(f"{name}: its config.json names other configuration_files; expected one configuration")
    for key, value in _implementations(content):
        if value.removeprefix("paged|") not in OWN:
            raise TellapartError(
                f"{name}: its config.json names {key} '{value}', which would load code; expected one of "
                f"{', '.join(OWN)}; remove the line to use it without"
            )
    for key, size in _sizes(content):
        if not 0 <= size <= (MOST_LAYERS if "layer" in key else MOST_UNITS):
            raise TellapartError(f"{name}: its config.json says {key} {size}, which no model has; copy it again")


SIZED = {"n_layer", "num_layers", "num_hidden_layers", "n_head", "num_attention_heads", "n_embd", "hidden_size"}
SIZED |= {"intermediate_size", "projection_dim", "vocab_size"}
MOST_LAYERS, MOST_UNITS = 10_000, 1 << 31


def _sizes(content: Any) -> Iterator[tuple[str, int]]:
    """The sizes that are named anywhere in a configuration: transformers makes a model of any, or tries to."""
    if isinstance(content, list):
        for each in content:
            yield from _sizes(each)
    if isinstance(content, dict):
        for key, value in content.items():
            if key in SIZED and isinstance(value, int):
                yield key, value
            else:
                yield from _sizes(value)


def _implementations(content: Any) -> Iterator[tuple[str, str]]:
    """The implementations of attention that are named anywhere in a configuration."""
    if isinstance(content, list):
        for each in content:
            yield from _implementations(each)
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        if key.removesuffix("_internal").endswith("attn_implementation"):
            values = value.values() if isinstance(value, dict) else [value]
            yield from ((key, str(each)) for each in values if each is not None)
        else:
            yield from _implementations(value)


def similar_folders(name: str) -> str:
    """``; did you mean 'out' or 'runs/x'?``, of the model folders and runs that lie here; empty without one."""
    parents = {Path(), RUNS, Path(name).parent}
    folders = [
        str(folder)
        for parent in parents
        if parent.is_dir()
        for folder in sorted(parent.iterdir())
        if (folder / "config.json").is_file() or (folder / "run.json").is_file()
    ]
    by_name = {Path(folder).name: folder for folder in folders} | {folder: folder for folder in [*folders, "scenes"]}
    close = difflib.get_close_matches(name, by_name, n=3)
    found = list(dict.fromkeys(by_name[each] for each in close))
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""


def missing_on_hub(name: str) -> str | None:
    """Why ``name`` cannot be had from the hub, in a few words; None where it can, or lies in the hub's cache."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    try:
        cached = isinstance(try_to_load_from_cache(name, "config.json"), str)
        if constants.HF_HUB_OFFLINE:
            return None if cached else "it is not in the hub's cache (HF_HUB_OFFLINE is set, so the hub is not asked)"
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=SECONDS)
    except HFValidationError:
        return "it cannot be the name of a model on the hub"
    except RepositoryNotFoundError:
        return "the hub has no public model of that name (is it misspelt, or private? then: hf auth login)"
    except EntryNotFoundError:
        return "on the hub it has no config.json"
    except (HfHubHTTPError, OSError) as error:
        return None if cached else f"the hub did not answer ({_first_line(error)}); a folder needs no network"
    except Exception as error:  # what the HTTP library raises has no name of Python's own
        return None if cached else f"the hub cannot be reached ({_first_line(error)}); a folder needs no network"
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:120].rstrip(".")


_FOR_PHOTOS = {"captioner": "Salesforce/blip-image-captioning-base", "scorer": "openai/clip-vit-base-patch32"}
BUILTIN = Path(__file__).parents[1] / "scenes" / "weights"


def model_folder(name: str, kind: str) -> str:
    """The folder (or hub name) behind ``name``; ``kind`` is 'captioner' or 'scorer'.

    ``scenes`` is the model that ships with the package; a run folder stands for the model it made; the name of a part
    that comes in a Python package (`models.packages`), for that.
    """
    if name == "scenes":
        return str(BUILTIN / kind)
    if name in PARTS:
        return str(packaged_folder(name))
    folder = Path(name).expanduser()
    if name.endswith(".toml"):
        raise UsageError(f"{name} is a recipe, not a {kind}; type: tellapart train {name}, then give its run's folder")
    if not name or folder.is_file():
        raise UsageError(f"'{name}' is no {kind}; expected a folder, a run, a hub name, or 'scenes'")
    if (folder / "run.json").is_file():
        if not (folder / "model" / "config.json").is_file():
            raise UsageError(
                f"{name} is a run without a finished model; type: "
                f"tellapart train {folder}/recipe.toml --out {folder} --resume"
            )
        return str(folder / "model")
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(f"{name} holds no config.json; expected a folder that save_pretrained wrote, or a run")
        return str(folder)
    if name.count("/") > 1 or name.startswith((".", "/", "~")) or name.endswith((".pt", ".pth", ".bin")):
        raise UsageError(f"no such model folder: {name}; expected a folder, a run, a hub name, or 'scenes'")
    return name


def warn_outside_scenes(name: str | None, items: Sequence[Item], kind: str) -> None:
    """Say once that ``scenes``, as a captioner or a scorer, knows no other pictures than those of its own world."""
    if name is not None and name.partition("?")[0] == "scenes" and any(item.truth is None for item in items[:1]):
        say_once(
            f"warning: the {kind} 'scenes' has seen only its own synthetic world; what it makes of other pictures "
            f"means nothing. Name a {kind} for photos, such as {_FOR_PHOTOS[kind]}"
        )


CANDIDATES = 48  # of a consensus: from 16 on more gain CIDEr, up to here R@1 (docs/log.md)
SCORER_WEIGHT = 0.1  # of a consensus with a scorer: more gains R@1, and loses precision and CIDEr (docs/log.md)
EVIDENCE = 0.5  # nats: a word stays where it is e^0.5 = 1.6 times as likely as for other pictures
# Which settings a kind reads, beside those that all read.
READ: dict[str, tuple[str, ...]] = {
    "greedy": (),
    "sample": ("temperature",),
    "beam": ("beams", "length_penalty_over"),
    "consensus": ("candidates", "scorer_weight", "temperature"),
}


class Decoding(BaseModel):
    """Settings of generation. ``samples`` captions per picture; ``max_tokens`` new ones, the end counted.

    ``greedy`` takes the likeliest token, ``sample`` draws from the softmax at ``temperature``,
    ``beam`` keeps ``beams`` hypotheses (returns the best ``samples`` of them, at most ``beams``), ``consensus`` draws
    ``candidates`` at ``temperature`` and keeps the one that the others agree with most
    (`captioners.consensus`); only `captioners.generate_captions` does so, for it chooses among texts. With a
    ``scorer_weight`` a scorer chooses too (`inference.best_of.chosen_captions`): so much agreement is a nat worth of
    log-probability that the scorer finds the picture among its look-alikes.

    ``length_penalty_over``: the tokens by which beam search divides the log-probability of a hypothesis: ``new``, the
    generated ones with the end token (transformers from 4.38 on), or ``all``, prompt and generated ones without the end
    token (transformers 4.15, with which the papers' captions were written). See `captioners.base.BeamSearch`.

    ``confidence``: nouns that the captioner writes with a smaller probability are dropped or become "thing", and what a
    caption says twice it says once; 0 leaves captions as they are written.

    A setting that ``kind`` does not read may stand beside it as its default alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["greedy", "sample", "beam", "consensus"] = "greedy"
    beams: int = Field(5, ge=1)
    length_penalty_over: Literal["new", "all"] = Field("new", exclude_if="new".__eq__)
    candidates: int = Field(CANDIDATES, ge=3, exclude_if=CANDIDATES.__eq__)  # fingerprints stay what they were
    scorer_weight: float = Field(0.0, ge=0, exclude_if=(0.0).__eq__)
    temperature: float = Field(1.0, gt=0)
    samples: int = Field(1, ge=1)
    max_tokens: int = Field(30, ge=1)
    confidence: float = Field(0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def as_many_as_it_writes(self) -> Decoding:
        most = {"greedy": 1, "beam": self.beams, "consensus": 1}.get(self.kind, self.samples)
        if self.samples > most:
            raise ValueError(
                f"samples is {self.samples}, and '{self.kind}' writes {most}; set kind = 'sample' for more"
            )
        return self

    @model_validator(mode="after")
    def is_read(self) -> Decoding:
        for name in sorted(self.model_fields_set & {name for names in READ.values() for name in names}):
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default and name not in READ[self.kind] and (name, value) != ("beams", 1):
                kinds = " or ".join(f"'{kind}'" for kind, names in READ.items() if name in names)
                raise ValueError(
                    f"{name} is {value}, which kind = '{self.kind}' does not read; leave it out (or set it to its "
                    f"default, {default}), or set kind to {kinds}"
                )
        return self

    @property
    def asks_scorer(self) -> bool:
        return self.kind == "consensus" and self.scorer_weight > 0

    @property
    def draws(self) -> bool:
        """Returns whether tokens are drawn at random."""
        return self.kind in ("sample", "consensus")

    @property
    def drawn(self) -> Decoding:
        """Returns what a captioner generates for this: the candidates of a consensus, else what is returned."""
        if self.kind != "consensus":
            return self
        return self.model_copy(update={"kind": "sample", "samples": self.candidates})

    def uniform(self, items: int, device: torch.device, seeds: ItemSeeds | None = None) -> torch.Tensor | None:
        """uniform_RT, one number in [0, 1) for every token that may be drawn; None where none is.

        ``seeds`` are those of the ``items``; without them the numbers come from torch's own generator.
        """
        if self.kind == "consensus":
            raise ValueError("a consensus is chosen among texts; call generate_captions, or generate with .drawn")
        if self.kind != "sample":
            return None
        if seeds is None:
            uniform_RT = torch.rand(items * self.samples, self.max_tokens, dtype=torch.float64)
        elif len(seeds) == items:
            uniform_RT = seeds.uniform("tokens", self.max_tokens, self.samples)
        else:
            raise ValueError(f"seeds of {len(seeds)} items for {items}")
        return uniform_RT.to(device, torch.float32 if device.type == "mps" else torch.float64)  # which has no float64


DEFAULT = Decoding(kind="beam", beams=5, max_tokens=30)  # of models that carry no settings of their own


def check_choice(decoding: Decoding, best_of: int | None, has_scorer: bool) -> None:
    """Raises `UsageError` where samples are to be chosen by a scorer that is missing, or a scorer has no choice."""
    if best_of is not None and (best_of < 2 or not has_scorer):
        raise UsageError("best-of needs at least 2 samples and a scorer; type: --best-of 10 --scorer MODEL")
    if decoding.asks_scorer and not has_scorer:
        raise UsageError("a consensus with scorer_weight needs a scorer; type: --consensus 48 --scorer MODEL")
    if has_scorer and best_of is None and not decoding.asks_scorer:
        raise UsageError("a scorer chooses among samples; type --best-of 10 or --consensus 48 with it, or leave it out")


def saved_options(where: str, from_hub: bool = False) -> dict[str, Any]:
    """Returns the options that a captioner was saved with; ``from_hub``: also of a hub name, by download.

    Raises `TellapartError` where their file holds something else.
    """
    file: Path | None = Path(where) / OPTIONS_FILE
    if from_hub and not Path(where).is_dir():
        from transformers.utils.hub import cached_file

        try:
            found = cached_file(where, OPTIONS_FILE, _raise_exceptions_for_missing_entries=False)
        except OSError:
            found = None  # what is needed was there without the network; this may not be
        file = Path(found) if found else None
    if file is None or not file.is_file():
        return {}
    try:
        saved = parse_json(file.read_text(encoding="utf-8"))
    except ValueError:
        saved = None
    if not isinstance(saved, dict):
        raise TellapartError(f"{file} is damaged: expected a JSON object; copy the folder again, or remove the file")
    return saved


def levels_in(saved: Mapping[str, Any], name: str) -> Levels:
    """Returns the amounts of detail that a captioner was trained for, of the options that it was saved with.

    Raises `TellapartError` where they are not pairs of a number and a prompt.
    """
    try:
        levels = tuple((float(value), str(prompt)) for value, prompt in saved.get("detail", ()))
        if all(0 <= value <= 1 for value, _ in levels):
            return levels
    except (TypeError, ValueError):
        pass
    raise TellapartError(
        f"{name}: detail in its {OPTIONS_FILE} is {saved['detail']!r:.80}; expected pairs of a number from 0 to 1 and "
        'a prompt, such as [[0.0, "briefly"], [1.0, ""]]; copy the folder again, or remove the key'
    )


def prompt_of_detail(levels: Levels, detail: float, name: str) -> str:
    """Returns the prompt of the level nearest to ``detail``; of two that are as near, of the one with less.

    Raises `UsageError` for a number outside 0 to 1, and for a captioner that was trained for no levels.
    """
    if not 0 <= detail <= 1:
        raise UsageError(f"{name}: detail is {detail:g}; expected a number from 0 (least) to 1 (most)")
    if not levels:
        raise UsageError(
            f"{name} was trained for no amounts of detail; expected a captioner whose recipe has objective.detail; "
            "leave --detail out, or train one (docs/concepts/truth.md)"
        )
    return min(levels, key=lambda level: abs(level[0] - detail))[1]


def decoding_in(saved: Mapping[str, Any]) -> Decoding | None:
    """Returns the generation settings among the options that a captioner was saved with."""
    return Decoding.model_validate(saved["decoding"]) if "decoding" in saved else None


def default_decoding(name: str) -> Decoding:
    """Returns the generation settings that a captioner was saved with, without loading it; else `DEFAULT`.

    Of a hub name the file of options is downloaded.
    """
    try:
        place = model_folder(name.partition("?")[0], "captioner")
        named = place.count("/") == 1 and not Path(place).is_dir()
        saved = saved_options(place, from_hub=named and missing_on_hub(place) is None)
        return DEFAULT if not isinstance(saved, dict) else decoding_in(saved) or DEFAULT
    except (OSError, ValueError, UsageError):
        return DEFAULT  # no folder of ours; whoever loads it says what is wrong


def check_shards(folder: Path) -> None:
    """Raises `TellapartError` where an index of weights names a file outside its folder."""
    for index in folder.glob("*.index.json"):
        try:
            files = set(parse_json(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue  # whoever loads it says so
        for name in files:
            if not isinstance(name, str) or Path(name).name != name:
                raise TellapartError(
                    f"{index}: names the weights '{name}', outside its folder; expected the name of a file beside it"
                )


def checked_model_folder(name: str, kind: str) -> str:
    """As `model_folder`, for a model that is loaded now: a folder's checksums are compared, and the hub is asked once
    whether it has the name, so that one that is nowhere costs no retries."""
    where = model_folder(name, kind)
    check_name(where, kind)
    check_shards(Path(where))
    check_sums(Path(where))
    return where


def load_whole(cls: Any, folder: str, **settings: Any) -> Any:
    """``cls.from_pretrained``, safetensors only. Raises `TellapartError` where weights are missing.

    Transformers makes those at random, with a table of their names: a captioner then writes noise.
    """
    model, report = load_reported(cls, folder, **settings)
    check_whole(folder, model, report, "; expected a whole captioner of that kind")
    return model


def load_reported(cls: Any, folder: str, **settings: Any) -> tuple[Any, Mapping[str, Any]]:
    """A model with transformers' report of its weights, for `check_whole`, in place of the table that it prints."""
    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(is_no_report)
    try:
        model, report = cls.from_pretrained(
            folder, use_safetensors=True, trust_remote_code=False, output_loading_info=True,
            ignore_mismatched_sizes=True, **settings,
        )  # fmt: skip
    finally:
        logger.removeFilter(is_no_report)
    return model, report


def check_whole(name: str, model: Any, report: Mapping[str, Any], then: str) -> None:
    """Raises `TellapartError` where the loading ``report`` names missing weights or others of another shape, and prints
    how many were left out; ``then``: how the error's line goes on."""
    kind = type(model).__name__
    if others := sorted(report["mismatched_keys"]):
        key, found, expected = others[0]
        told = f"{name}: {len(others)} weights have other shapes than its config.json says ({key} is {tuple(found)}, "
        raise TellapartError(f"{told}expected {tuple(expected)}){then}")
    if missing := sorted(report["missing_keys"]):
        raise TellapartError(f"{name} lacks {len(missing)} weights of a {kind} ({missing[0]}, …){then}")
    if stray := sorted(report["unexpected_keys"]):
        say(f"{name}: left out {len(stray)} weights that a {kind} does not have, such as {stray[0]}")


def files_digest(name: str, kind: str) -> str | None:
    """A hash of the files that ``name`` would be loaded from, without loading it; None where they are not on disk."""
    try:
        folder = Path(model_folder(name, kind))
    except UsageError:
        return None  # a published checkpoint, or code of one's own
    if not folder.is_dir():
        from huggingface_hub import try_to_load_from_cache

        try:
            config = try_to_load_from_cache(name, "config.json")
        except ValueError:
            return None  # no name that the hub would give
        if not isinstance(config, str):
            return None
        folder = Path(config).parent
    suffixes = (".json", ".safetensors", ".txt", ".model", ".jinja")
    files = sorted(file for file in folder.iterdir() if file.suffix in suffixes and file.is_file())
    lines = [f"{sha256(file)}  {file.name}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def silence_transformers() -> None:
    """No bars of transformers' own for the moment that loading or saving takes, and no advice about padding."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    logging.getLogger("transformers.modeling_utils").addFilter(is_news)


def is_news(record: logging.LogRecord) -> bool:
    """False for the advice to mask padding, which comes whenever one caption of a batch ends before the others."""
    return "passing in an `attention_mask`" not in record.getMessage()


def is_no_report(record: logging.LogRecord) -> bool:
    """False for the table of weights that are missing, unknown or of another shape."""
    return "LOAD REPORT" not in record.getMessage()


@contextmanager
def loading_errors(name: str, expected: str) -> Iterator[None]:
    """Turn what a loader raises into one line that says what to do."""
    silence_transformers()
    try:
        yield
    except (TellapartError, MemoryError):
        raise
    except Exception as error:  # loaders of other libraries raise anything, plain Exception among it
        if "trust_remote_code" in str(error):
            raise TellapartError(
                f"{name} comes with code of its own to run, which tellapart does not do; expected a model that "
                "transformers knows; or write a captioner of your own around it (docs/captioners.md)"
            ) from error
        if "torchvision" in str(error).lower() and find_spec("torchvision") is None:
            raise TellapartError(
                f"{name}: transformers reads the pictures of this model with torchvision, which is not installed; "
                "type: pip install torchvision (of the version that fits your torch), or take another family"
            ) from error
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        hub = "" if Path(name).exists() or name == "scenes" else f": there is no such folder, and from the hub{offline}"
        raise TellapartError(f"cannot load {name}{hub}: {cause[:240].rstrip('.')}; expected {expected}") from error


NO_SETTINGS = ("transformers_version", "architectures", "dtype", "torch_dtype")  # of a configuration: nothing follows


def settings_of(model: Any) -> str:
    """Returns what the configuration of a model says of its computation, as JSON; "" where it has none."""

    def kept(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: kept(own) for key, own in value.items() if key not in NO_SETTINGS and not str(key).startswith("_")}

    config: Any = getattr(model, "config", None)
    return json.dumps(kept(config.to_dict()), sort_keys=True, default=str) if hasattr(config, "to_dict") else ""


def weights_fingerprint(model: Any, processor: Any, view: str = "") -> str:
    """Hashes a model's weights (names, shapes, bytes), its picture preprocessing, and ``view``."""
    digest = hashlib.blake2b(view.encode(), digest_size=12)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    preprocessing = {} if processor is None else processor.to_dict()
    digest.update(json.dumps(preprocessing, sort_keys=True, default=str).encode())
    return digest.hexdigest()


Precision = Literal["fp32", "bf16", "fp16"]

CPU_ONLY = "ACCELERATE_USE_CPU"  # what `accelerate launch --cpu` sets
DEVICE = "TELLAPART_DEVICE"  # the device that `auto` stands for, in this process and those that it starts
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
AMPERE = 8  # the first CUDA capability whose tensor cores multiply in bfloat16


def best_device() -> torch.device:
    """``$TELLAPART_DEVICE``, else the accelerator that torch finds (CUDA, ROCm, XPU, MPS …), else the CPU."""
    if (named := os.environ.get(DEVICE, "auto")) != "auto":
        return resolve_device(named)
    if os.environ.get(CPU_ONLY, "").lower() in ("1", "true", "yes", "on") or not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """The device behind ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps`` … Raises `UsageError` where there is none."""
    if name == "auto":
        return best_device()
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"no device is called '{name}'; expected auto, cpu, cuda, cuda:1 or mps") from None
    if device.type == "cpu":
        return device
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is None or found.type != device.type:
        there = "cpu alone" if found is None else f"cpu and {found.type}"
        raise UsageError(f"device '{name}': torch finds {there} on this machine; type: --device auto")
    if (count := torch.accelerator.device_count()) <= (device.index or 0):
        raise UsageError(
            f"device '{name}': there are {count}, counted from {found.type}:0; type: --device {found.type}"
        )
    return device


def multiplies_in_bf16(device: torch.device) -> bool:
    """Returns whether the hardware multiplies matrices in bfloat16: AMX, AVX512_BF16, CUDA from capability 8.0,
    ROCm.
    """
    if device.type == "cpu":
        return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())
    if device.type == "cuda":
        return torch.version.hip is not None or torch.cuda.get_device_capability(device)[0] >= AMPERE
    return device.type == "xpu"


def resolve_precision(name: str, device: torch.device) -> Precision:
    """``fp32``, ``bf16`` or ``fp16``; ``auto`` is bf16 where ``device`` multiplies in it. Raises `UsageError`."""
    if name == "auto":
        return "bf16" if multiplies_in_bf16(device) else "fp32"
    if name not in DTYPES:
        raise UsageError(f"no precision is called '{name}'{nearest(name, ('auto', *DTYPES))}")
    if name == "fp16" and device.type == "cpu":
        raise UsageError("fp16 is slower than fp32 on a CPU; type: --precision bf16, or --device with an accelerator")
    return cast(Precision, name)


def exact_precision(name: str, device: torch.device) -> Precision:
    """As `resolve_precision` for what measures (rewards, metrics, similarity of pictures): ``auto`` is fp32."""
    return resolve_precision("fp32" if name == "auto" else name, device)


def dtype_of(precision: Precision) -> torch.dtype:
    """The dtype of weights in this precision."""
    dtype: torch.dtype = getattr(torch, DTYPES[precision])
    return dtype


def precision_of(model: torch.nn.Module) -> str:
    """The precision of a model's weights, such as ``bf16``; of another dtype torch's name of it."""
    found = next((x.dtype for x in model.parameters() if x.is_floating_point()), None)
    name = str(found).removeprefix("torch.")
    return next((short for short, long in DTYPES.items() if long == name), name if found is not None else "fp32")


def set_precision(model: torch.nn.Module, precision: Precision) -> None:
    """Cast weights (and buffers that are saved with them) in place.

    Other buffers, such as the frequencies of rotary positions, keep float32, as they do where transformers loads a
    model in ``bf16``. Below fp32 the weights are for inference and take no gradient: small updates would be lost.
    """
    dtype = dtype_of(precision)
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point() and name not in module._non_persistent_buffers_set:
                module._buffers[name] = buffer.to(dtype)
        for parameter in module._parameters.values():
            if parameter is not None and parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)
    if precision != "fp32":
        model.requires_grad_(False)


@contextmanager
def running_on(device: str) -> Iterator[None]:
    """For the moment ``auto`` stands for this device, here and in processes that are started. Raises `UsageError`."""
    before = os.environ.get(DEVICE)
    if device != "auto":
        resolve_device(device)
        os.environ[DEVICE] = device
    try:
        yield
    finally:
        if before is not None:
            os.environ[DEVICE] = before
        elif device != "auto":
            os.environ.pop(DEVICE, None)


def hardware(*models: Any) -> dict[str, str]:
    """``{"device", "precision"}`` of models, for a result's file; several that differ are joined with commas."""
    devices = dict.fromkeys(str(next((x.device for x in model.parameters()), "cpu")) for model in models)
    return {
        "device": ", ".join(devices),
        "precision": ", ".join(dict.fromkeys(precision_of(model) for model in models)),
    }


R = TypeVar("R")

# What allocators of torch say where they raise a plain RuntimeError: the CPU's (two ways), MPS.
WORDS = ("can't allocate memory", "not enough memory", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether torch could not allocate memory, on an accelerator or on the CPU."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in WORDS)


class BatchSize:
    """Decides how many items are worked on at once: ``size`` until memory runs out, then half as many, from then on."""

    def __init__(self, size: int, what: str) -> None:
        self.size, self.what = size, what

    def batches(self, count: int, work: Callable[[slice], R]) -> Iterator[R]:
        """``work`` of slices of ``count`` items, one after the other. Raises `TellapartError` where one is too many."""
        start = 0
        while start < count:
            chosen = slice(start, min(start + self.size, count))
            if (result := self._tried(chosen, work)) is None:
                self._halve(chosen.stop - start)
                continue
            start = chosen.stop
            yield result[0]

    @staticmethod
    def _tried(chosen: slice, work: Callable[[slice], R]) -> tuple[R] | None:
        """The result, or None where memory ran out: whatever the work held is free on return."""
        try:
            return (work(chosen),)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            if not is_out_of_memory(error):
                raise
            return None

    def _halve(self, tried: int) -> None:
        gc.collect()
        if torch.accelerator.is_available():
            torch.accelerator.empty_cache()
        if tried == 1:
            raise TellapartError(
                f"out of memory with one picture at once ({self.what}); type: --precision bf16, or --device cpu"
            )
        self.size = max(1, tried // 2)
        say(f"out of memory with {tried} pictures at once ({self.what}); going on with {self.size}")


MOST_BYTES = 2**31  # of arranged copies; the layers beyond are multiplied from the weights that they have
ROWS = 16  # the rows that a copy is arranged for; any number may be multiplied
# Modules of transformers whose first layer is followed by an activation and by nothing else: oneDNN does both at once.
ACTIVATED = {
    "BlipMLP": ("fc1", "activation_fn"),
    "Blip2MLP": ("fc1", "activation_fn"),
    "BlipTextIntermediate": ("dense", "intermediate_act_fn"),
    "BertIntermediate": ("dense", "intermediate_act_fn"),
    "ViTIntermediate": ("dense", "intermediate_act_fn"),
}


class OneDnnLinear:
    """The forward of ``nn.Linear`` or of transformers' ``Conv1D`` in fp32 on a CPU, with gradient, by oneDNN.

    MKL, which torch takes for fp32, multiplies in its slower path on CPUs that are not Intel's.
    """

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        module = self.module
        if not multiplies_by_onednn(x, module.weight):
            plain: torch.Tensor = type(module).forward(module, x)
            return plain
        weight_NK = module.weight if isinstance(module, torch.nn.Linear) else module.weight.T
        return onednn_linear(x, weight_NK, module.bias)


def multiplies_by_onednn(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Returns whether `OneDnnLinear` is faster: both are fp32 on a CPU with AVX512, and there is no autocast."""
    fits = x.dtype == weight.dtype == torch.float32 and x.device.type == weight.device.type == "cpu" and x.numel()
    return bool(fits) and not torch.is_autocast_enabled("cpu") and has_onednn() and torch.cpu._is_avx512_supported()


def speed_up(model: torch.nn.Module) -> None:
    """Makes the layers of a large model faster, results the same but for rounding; smaller models stay as they are.

    ``gelu_new``, eight operations in transformers, becomes torch's one of the same function, and linear layers are
    `OneDnnLinear`.
    """
    if sum(parameter.numel() for parameter in model.parameters()) < LARGE:
        return
    for module in list(model.modules()):
        if "forward" not in vars(module) and packs(module):
            cast(Any, module).forward = OneDnnLinear(module)
        for name, child in module.named_children():
            if type(child).__name__ == "NewGELUActivation":
                setattr(module, name, torch.nn.GELU("tanh"))


LARGE = 2**24  # weights, 64 MB in fp32: below, sums stay in the order in which torch adds them up


def linear(x: torch.Tensor, weight_NK: torch.Tensor, bias_N: torch.Tensor | None = None) -> torch.Tensor:
    """Computes ``F.linear``; a large layer in fp32 on a CPU with AVX512 by oneDNN, as `OneDnnLinear` does."""
    if weight_NK.numel() >= LARGE and multiplies_by_onednn(x, weight_NK):
        return onednn_linear(x, weight_NK, bias_N)
    return F.linear(x, weight_NK, bias_N)


def onednn_linear(x: torch.Tensor, weight_NK: torch.Tensor, bias_N: torch.Tensor | None) -> torch.Tensor:
    """Computes ``F.linear`` of fp32 on a CPU by oneDNN; can be differentiated once.

    weight_NK: N×K, or the transposed view of weights K×N.
    """
    product: torch.Tensor = product_function().apply(x, weight_NK, bias_N)
    return product


@functools.cache
def product_function() -> Any:
    """Returns the `torch.autograd.Function` of `onednn_linear`; made at its first use, which is when torch is there."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weight_NK: torch.Tensor, bias_N: torch.Tensor | None) -> torch.Tensor:
            ctx.save_for_backward(x, weight_NK)
            return multiply(x, weight_NK, bias_N)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            x, weight_NK = ctx.saved_tensors
            wants_x, wants_weight, wants_bias = ctx.needs_input_grad
            x_MK, slope_MN = x.reshape(-1, x.shape[-1]), slope.reshape(-1, slope.shape[-1])
            to_weight_NK = None
            if wants_weight and weight_NK.is_contiguous():  # laid out as the weights are, as optimizers want it
                to_weight_NK = multiply(slope_MN.T, x_MK.T)
            elif wants_weight:
                to_weight_NK = multiply(x_MK.T, slope_MN.T).T
            return (
                multiply(slope, weight_NK.T) if wants_x else None,
                to_weight_NK,
                slope_MN.sum(0) if wants_bias else None,
            )

    return Product


def multiply(x: torch.Tensor, weight_NK: torch.Tensor, bias_N: torch.Tensor | None = None) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight_NK, bias_N, "none", [], "")
    return product


class PackedLinear:
    """The forward of ``nn.Linear`` or of transformers' ``Conv1D``, without gradient; with one it is the module's own.

    ``copied``: whether the weights may be arranged in a copy, which is made at the first call. ``gelu``: whether the
    product goes through GELU (of the error function) as well.
    """

    def __init__(self, module: Any, copied: bool) -> None:
        self.module, self.copied, self.gelu = module, copied, False
        self.weight_NK: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        module = self.module
        if torch.is_grad_enabled() or x.dtype != module.weight.dtype or x.device.type != "cpu" or not x.numel():
            plain: torch.Tensor = type(module).forward(module, x)
            return F.gelu(plain) if self.gelu else plain
        if self.weight_NK is None:
            weight_NK = module.weight.detach()
            weight_NK = weight_NK if isinstance(module, torch.nn.Linear) else weight_NK.t().contiguous()
            self.weight_NK = torch.ops.mkldnn._reorder_linear_weight(weight_NK, ROWS) if self.copied else weight_NK
        after: tuple[str, list[float], str] = ("gelu", [], "none") if self.gelu else ("none", [], "")
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight_NK, module.bias, *after)
        return product


@contextmanager
def packed_linears(model: torch.nn.Module) -> Iterator[None]:
    """For the moment the linear layers of ``model`` are `PackedLinear`, where that is faster: on a CPU of x86, in fp32,
    and in bf16 where it multiplies in it. Weights must not change meanwhile. Several threads may do so with one model:
    the last one to end gives the layers back."""
    with _LOCK:
        use = _IN_USE.get(model)
        if use is None:
            use = _IN_USE[model] = _Use(_replaced(model))
        use.threads += 1
    try:
        yield
    finally:
        with _LOCK:
            use.threads -= 1
            if not use.threads:
                del _IN_USE[model]
                _give_back(use.changed)


@dataclass
class _Use:
    """The modules of a model whose forward is replaced, and how many threads need that."""

    changed: list[tuple[torch.nn.Module, OneDnnLinear | None]]
    threads: int = 0


_LOCK = threading.Lock()
_IN_USE: dict[torch.nn.Module, _Use] = {}


def _replaced(model: torch.nn.Module) -> list[tuple[torch.nn.Module, OneDnnLinear | None]]:
    """The modules whose forward is replaced from now on, each with what replaced it before."""
    changed: list[tuple[torch.nn.Module, OneDnnLinear | None]] = []
    room = MOST_BYTES
    try:
        for module in model.modules():
            before = vars(module).get("forward")
            if isinstance(before, OneDnnLinear | None) and packs(module):
                weight: torch.Tensor = cast(Any, module).weight
                room -= weight.numel() * weight.element_size()
                if room >= 0 or (weight.dtype == torch.float32 and isinstance(module, torch.nn.Linear)):
                    cast(Any, module).forward = PackedLinear(module, copied=room >= 0)
                    changed.append((module, before))
        fused = [activation for module in model.modules() if (activation := fused_activation(module)) is not None]
        changed += [(activation, None) for activation in fused]
    except BaseException:
        _give_back(changed)
        raise
    return changed


def _give_back(changed: list[tuple[torch.nn.Module, OneDnnLinear | None]]) -> None:
    for module, before in changed:
        del cast(Any, module).forward
        if before is not None:
            cast(Any, module).forward = before


def fused_activation(module: Any) -> torch.nn.Module | None:
    """The activation of a module in `ACTIVATED`, which its `PackedLinear` computes from now on; None: as it was."""
    first, name = ACTIVATED.get(type(module).__name__, ("", ""))
    layer: Any = getattr(module, first, None)
    activation: Any = getattr(module, name, None)
    exact = type(activation) is torch.nn.GELU and activation.approximate == "none"
    if type(activation).__name__ == "GELUActivation":
        exact = activation.act is F.gelu
    packed = vars(layer).get("forward") if layer is not None else None
    if not exact or not isinstance(packed, PackedLinear) or "forward" in vars(activation):
        return None
    packed.gelu, activation.forward = True, _as_it_is
    return cast(torch.nn.Module, activation)


def _as_it_is(states: torch.Tensor) -> torch.Tensor:
    return states


def packs(module: torch.nn.Module) -> bool:
    """Returns whether `PackedLinear` can stand for a module's forward."""
    if type(module) not in (torch.nn.Linear, pytorch_utils.Conv1D):
        return False
    weight: torch.Tensor = cast(Any, module).weight
    if weight.device.type != "cpu" or not has_onednn():
        return False
    if weight.dtype == torch.bfloat16:
        return multiplies_in_bf16(weight.device) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32


@functools.cache
def has_onednn() -> bool:
    """Returns whether this is a CPU of x86, and torch has what its compiler calls for linear layers there."""
    if platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available():
        return False
    operators: tuple[Callable[[], Any], ...] = (
        lambda: torch.ops.mkldnn._reorder_linear_weight.default,
        lambda: torch.ops.mkldnn._linear_pointwise.default,
    )
    try:
        return all(operator() is not None for operator in operators)
    except AttributeError:
        return False
