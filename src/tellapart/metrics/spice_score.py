"""SPICE (Anderson et al. 2016), computed with the original tool, which the user has to install.

The tool is a Java 8 program that comes with pycocoevalcap, and its parser can be downloaded by pycocoevalcap. Like the
COCO tools, this module first tokenizes captions with the PTB tokenizer. Like pycocoevalcap, it then writes the tool's
input, runs the tool and reads its output. The tool was not available during development, so the tests use a mock.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.metrics.corpus_scores import PERCENT
from tellapart.metrics.inputs import References
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.ptb import VERSION, tokenized
from tellapart.metrics.recent import recent
from tellapart.metrics.registry import metric
from tellapart.utils.messages import say_once

SPICE_SIGNATURE = f"spice-1.0,corenlp-3.6.0|mean-of-captions|tok:{VERSION}"
JAR = "spice-1.0.jar"
PARSER = ("lib/stanford-corenlp-3.6.0.jar", "lib/stanford-corenlp-3.6.0-models.jar")
JAVA = 8
_FETCH = "from pycocoevalcap.spice.get_stanford_models import get_stanford_models as f; f()"


@dataclass(frozen=True)
class Tool:
    """The Java 8 executable that runs SPICE, and the folder that contains SPICE's jar."""

    java: str
    folder: Path


def find_tool() -> Tool:
    """Finds Java 8 (from `TELLAPART_JAVA` or else PATH) and the tool's folder (from `TELLAPART_SPICE` or else in
    pycocoevalcap).
    """
    folder = _folder()
    lacking = [name for name in PARSER if not (folder / name).is_file()]
    if not (folder / JAR).is_file():
        raise UsageError(f"SPICE: {folder} does not contain {JAR}; set TELLAPART_SPICE to the tool's folder")
    if lacking:
        raise UsageError(
            f"SPICE: {folder} does not contain {lacking[0]} (Stanford CoreNLP 3.6.0, a download of about 500 MB); "
            f'run: python -c "{_FETCH}"'
        )
    return Tool(_java(), folder)


def spice_stats(captions: Sequence[str], references: References) -> np.ndarray:
    """Returns (SPICE, 1) for each caption, N×2."""
    score_N = spice(captions, references)[1]
    return np.stack([score_N, np.ones(len(score_N))], axis=1)


def spice_of(sums_R2: np.ndarray) -> np.ndarray:
    """Computes the mean from the sums of `spice_stats`; NaN if any caption's score is NaN."""
    mean_R: np.ndarray = sums_R2[..., 0] / sums_R2[..., 1]
    return mean_R


@metric(
    "spice",
    stats=spice_stats,
    score=spice_of,
    signature=SPICE_SIGNATURE,
    label="SPICE",
    help="F1 of the objects, attributes and relations shared with the references",
    scale=100.0,
    bounds=PERCENT,
    direction="higher",
    group=CLOSE,
    check=find_tool,
)
def spice(captions: Sequence[str], references: References) -> tuple[float, np.ndarray]:
    """Computes SPICE, the F1 of scene-graph tuples, 0 to 1. Returns the mean and each caption's score.

    If the tool returns NaN for a caption, the mean is NaN too, as in pycocoevalcap. Raises `UsageError` (or
    `MissingExtra`) if Java 8 or the tool's files are missing, and `TellapartError` if the tool fails.
    """
    score_N = np.array([found["All"]["f"] for found in spice_scores(captions, references)], dtype=float)
    return (float(score_N.mean()) if len(score_N) else float("nan")), score_N


@recent
def spice_scores(captions: Sequence[str], references: References) -> list[dict[str, dict[str, float]]]:
    """For each caption, returns the tool's f, pr, re, … by category (All, Object, Relation, Attribute, Color, …)."""
    return spice_scores_of_tokens(*tokenized(captions, references))


def spice_scores_of_tokens(
    caption_tokens: Sequence[str], reference_texts: Sequence[Sequence[str]]
) -> list[dict[str, dict[str, float]]]:
    """Computes `spice_scores` from texts in the form passed to the tool."""
    if not caption_tokens:
        return []
    entries = [
        {"image_id": number, "test": caption, "refs": texts}
        for number, (caption, texts) in enumerate(zip(caption_tokens, reference_texts, strict=True))
    ]
    tool = find_tool()
    say_once("SPICE: parsing captions and references in Java; this takes minutes for thousands of captions")
    found = {item["image_id"]: item["scores"] for item in _run(tool, entries)}
    lacking = [number for number in range(len(caption_tokens)) if "f" not in found.get(number, {}).get("All", {})]
    if lacking:
        raise TellapartError(
            f"SPICE returned no score for {len(lacking)} captions (the first: {caption_tokens[lacking[0]]!r})"
        )
    return [
        {
            category: {name: _number(value) for name, value in scores.items()}
            for category, scores in found[number].items()
        }
        for number in range(len(caption_tokens))
    ]


def _folder() -> Path:
    configured = os.environ.get("TELLAPART_SPICE")
    if configured:
        return Path(configured)
    found = importlib.util.find_spec("pycocoevalcap")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("spice", "SPICE")
    return Path(found.submodule_search_locations[0]) / "spice"


def _java() -> str:
    configured = os.environ.get("TELLAPART_JAVA")
    java = shutil.which(configured or "java")
    how = f"install Java {JAVA} (for example, Temurin's JRE) and set TELLAPART_JAVA to its bin/java"
    if java is None:
        raise UsageError(f"SPICE requires Java {JAVA}, but {configured or 'java'} was not found: {how}")
    done = subprocess.run([java, "-version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if version is None:
        raise UsageError(f"SPICE requires Java {JAVA}, but {java} does not print its version: {how}")
    if int(version[1]) != JAVA:
        raise UsageError(
            f"SPICE requires Java {JAVA} and crashes on newer versions, but {java} is Java {version[1]}: {how}"
        )
    return java


def _run(tool: Tool, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="tellapart-spice-") as name:
        place = Path(name)
        cache, given, out = place / "cache", place / "in.json", place / "out.json"
        cache.mkdir()
        given.write_text(json.dumps(entries), encoding="utf-8")
        command = [tool.java, "-jar", "-Xmx8G", JAR, str(given), "-cache", str(cache), "-out", str(out)]
        done = subprocess.run(
            [*command, "-subset", "-silent"],
            cwd=tool.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if done.returncode:
            lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
            cause = next((line for line in lines if "Error" in line or "Exception" in line), lines[-1] if lines else "")
            raise TellapartError(f"SPICE failed with status {done.returncode}: {cause or 'no output'}")
        try:
            found: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TellapartError(f"SPICE finished, but its output cannot be parsed ({error})") from None
        return found


def _number(value: Any) -> float:
    """Converts a value to float. Anything but a number becomes NaN, as in pycocoevalcap; the tool writes null
    for 0/0.
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
