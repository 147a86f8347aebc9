"""``tellapart check``: finds damaged captions and pictures before training or evaluating with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tellapart.check.captions import LANGUAGES
from tellapart.check.kinds import DEFECTS
from tellapart.check.page import write_check_page
from tellapart.check.run import check_captions, skipped_kinds
from tellapart.cli.app import MEASURING, App
from tellapart.cli.options import Device, Json, OptionalFile
from tellapart.cli.output import show
from tellapart.data import open_data
from tellapart.data.caption_files import read_caption_file, read_reference_file
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.language.codes import language_code
from tellapart.utils.messages import say
from tellapart.utils.outputs import check_output
from tellapart.utils.typed_command import typed_command

app = App()
ANY = "any"


@app.command(rich_help_panel=MEASURING)
def check(
    captions: Path,
    pictures: Annotated[str | None, typer.Argument()] = None,
    references: Path | None = None,
    scorer: str | None = None,
    captioner: str | None = None,
    language: str = "en",
    fail_on: Annotated[list[str] | None, typer.Option(metavar="KIND[=PERCENT]")] = None,
    report: OptionalFile = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Find damaged captions and pictures: truncated, shared or templated captions, mismatched pairs, unreadable files.

    No model is needed, except for the checks that --scorer and --captioner add. In CI, use --fail-on any.

    Args:
        captions: Caption file, in any layout that eval reads.
        pictures: Pictures that the captions describe: kind:path?split=test, or a folder.
        references: Reference captions, to detect captions that were copied from them or belong to other pictures.
        scorer: Scorer, to detect captions that fit other pictures better.
        captioner: Captioner, to detect words that fit any picture.
        language: Language of the captions: en, de, fr, es, it, pt or nl, also with a region (pt-BR). The language of
            captions in others is not checked.
        fail_on: Exit with status 1 if this kind of damage exceeds its threshold ('any': all kinds). Repeatable.
        report: HTML page to write, with the fifty worst captions.
    """
    levels = levels_of(fail_on or ())
    language = language_code(language, LANGUAGES)
    if report is not None:
        check_output(report, ".html", ".htm")
    if device != "auto" and not (scorer or captioner):
        raise UsageError("--device requires --scorer or --captioner; add one, or remove --device")
    given = {"references": references, "scorer": scorer, "captioner": captioner}
    refuse_skipped(fail_on or (), skipped_kinds(given, pictures, language.partition("-")[0]))
    file = read_caption_file(captions)
    known = None if references is None else read_reference_file(references)
    dataset = None if pictures is None else open_data(pictures)
    listener = speaker = None
    if scorer is not None:
        from tellapart.scorers import load_scorer

        listener = load_scorer(scorer, device)
    if captioner is not None:
        from tellapart.captioners import load_captioner

        speaker = load_captioner(captioner, device, "fp32")
    found = check_captions(file, dataset, references=known, language_name=language, scorer=listener, captioner=speaker)
    show(found.to_json(), found.table, as_json)
    if report is not None:
        write_check_page(found, report, typed_command(), dataset)
        say(f"report: {report}")
    refuse_skipped(fail_on or (), found.skipped)
    if levels and (loud := found.alarms(levels)):
        rates = ", ".join(f"{name} {100 * found.rate(name):.2f}%" for name in loud)
        raise TellapartError(f"the threshold of --fail-on is exceeded: {rates}")


def refuse_skipped(options: Sequence[str], skipped: Mapping[str, str]) -> None:
    """Raises `UsageError` if ``--fail-on`` names a kind that is not checked."""
    for option in options:
        if argument := skipped.get(option.partition("=")[0].strip()):
            raise UsageError(f"--fail-on {option}: this kind is not checked, because it requires {argument}")


def levels_of(options: list[str] | tuple[str, ...]) -> dict[str, float | None]:
    """Maps each kind in ``--fail-on`` to its threshold, a fraction, or to None for the default threshold.

    Raises `UsageError`.
    """
    levels: dict[str, float | None] = {}
    for option in options:
        name, equals, percent = (part.strip() for part in option.partition("="))
        if name == ANY and not equals:
            levels = dict.fromkeys(DEFECTS) | levels
            continue
        if name not in DEFECTS:
            raise UsageError(f"--fail-on {option}: unknown kind '{name}'{nearest(name, [*DEFECTS, ANY])}")
        try:
            level = levels[name] = float(percent) / 100 if equals else None
        except ValueError:
            raise UsageError(f"--fail-on {option}: expected a percentage after '='") from None
        if level is not None and not 0 <= level <= 1:
            raise UsageError(f"--fail-on {option}: expected a percentage from 0 to 100")
    return levels
