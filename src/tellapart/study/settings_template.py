"""Writes the text of a new ``study.toml``: the text that participants read, and the rules with explanations."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

from tellapart.study.settings import OPEN

INSTRUCTIONS = {
    "pick": (
        "You will see a description and several pictures that look alike. Choose the picture that the description fits "
        "best.",
        (
            "Some descriptions were written by a computer and may be vague or partly wrong. Always "
            "choose the picture that you find most plausible."
        ),
        (
            "There is no time limit. Some items are checks with an obvious answer; they show us whether "
            "participants are answering carefully."
        ),
    ),
    "rate": (
        ("You will see a picture and a caption. Rate the caption on three scales from 1 (terrible) to 5 (excellent)."),
        (
            "Descriptiveness: how much correct detail about the picture it gives. Accuracy: whether "
            "everything that it says is in the picture. Fluency: whether it reads like good English."
        ),
        (
            "A short caption can be accurate but say little; a long one can say a lot but be partly "
            "wrong. Rate the three scales independently of each other."
        ),
        (
            "There is no time limit. Some items are checks with an obvious answer; they show us whether "
            "participants are answering carefully."
        ),
    ),
    "compare": (
        (
            "You will see a picture and two captions, A and B. Choose the one that tells you more "
            "about the picture, and the one that says something wrong."
        ),
        "A caption that tells more may also be the one that is wrong: answer the two questions independently.",
        (
            "There is no time limit. Some items are checks with an obvious answer; they show us whether "
            "participants are answering carefully."
        ),
    ),
}
CONSENT = (
    "You are invited to take part in a research study about descriptions of pictures. Please read this page before you "
    "decide.",
    "What you will do: {task} This takes about {minutes} minutes. {open}: describe how participants are paid.",
    (
        "Pictures and descriptions come from public collections or were written by a computer, and "
        "may contain content that upsets you. You may stop at any time, without giving a reason, by "
        "closing the page or with the button “Leave”, which also lets you delete your answers."
    ),
    (
        "What we store: your answers, how long each one took and, if you came from a recruitment "
        "platform, the identifier that it gave you. We use the identifier only to pay you and delete "
        "it afterwards; we never publish it. We store no name, no address and nothing about your "
        "device. Your browser stores a random number, so that you can pause and continue later."
    ),
    ("We publish the answers without identifiers, together with the results, so that others can check them."),
)
TASKS = {
    "pick": "read short descriptions and choose the picture that each one fits best.",
    "rate": "read captions of pictures and rate each one.",
    "compare": "read pairs of captions of the same picture and compare them.",
}


def settings_text(kind: str, title: str, raters: int | None, minutes: int) -> str:
    """Returns the text of a new study.toml. `OPEN` marks text that the researcher has yet to write."""
    consent = [text.format(task=TASKS[kind], minutes=minutes, open=OPEN) for text in CONSENT]
    return f"""\
# Written by `tellapart study create`. Fill in everything marked {OPEN}, read the rest, and change what you
# need, before anyone takes part. Everything except [recruitment] is stamped (hashed) when the first participant begins.
title = {_toml(title or OPEN)}
instructions = {_toml(INSTRUCTIONS[kind])}

[consent]
researcher = "{OPEN}"
institution = "{OPEN}"
contact = "{OPEN}"
ethics = "{OPEN}"  # name of the board and approval number
paragraphs = {_toml(consent)}

[sampling]
raters = {raters}  # number of participants whose answers count, per block
replace_excluded = true  # give the block of an excluded participant to another participant

[exclusion]  # decided before the study; the report lists everyone who is excluded
max_control_errors = 1  # exclude participants with more wrong control items (paper 3: 1)
min_median_seconds = 0.0  # exclude participants with a lower median time per item; 0: no limit
max_same_answer = 1.0  # exclude participants who give the same answer to a larger fraction of items; 1: no limit

[analysis]
resamples = 2000  # bootstrap resamples of participants and items
confidence = 0.95
seed = 0

[recruitment]  # not stamped: may change while the study runs
id_parameter = "PROLIFIC_PID"  # parameter of the link; MTurk: workerId
id_pattern = '[\\w.@-]{{1,100}}'  # format of identifiers; Prolific: '[0-9a-f]{{24}}'
link_key = "{secrets.token_urlsafe(9)}"  # &key=… in the link, required to begin; "": anyone can begin
starts_per_address = 30  # maximum number of participations that begin per hour and network address; 0: no limit
require_id = false  # true: only links with an identifier can begin
timeout_minutes = 90  # time without an answer after which the block goes to another participant
completed = "{secrets.token_hex(4).upper()}"
screened_out = "{secrets.token_hex(4).upper()}"  # the study is full, or the time has run out
no_consent = "{secrets.token_hex(4).upper()}"
return_url = ""  # the code is appended; Prolific: "https://app.prolific.com/submissions/complete?cc="
"""


def _toml(value: str | Sequence[str]) -> str:
    """Formats a string or a list of strings as JSON, which is also valid TOML."""
    return json.dumps(value, ensure_ascii=False, indent=2)
