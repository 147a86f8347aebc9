"""Which stages there are, what they ask, and prompts as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_stage_prompts import copied

from tellapart.boost.stage_prompts import BUILTIN
from tellapart.boost.stages import AGAIN_TEMPERATURE, STAGE_NAMES, stages
from tellapart.boost.types import Answer, BackendError, Message, Request
from tellapart.errors import UsageError
from tellapart.scenes import Scenes
from tellapart.types import Item

ITEM = Scenes(1)[0].item()


class Silent:
    """A backend that is never asked here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def complete(self, request: Request) -> Answer:
        raise AssertionError(request)


LLM, MLLM = Silent("llm"), Silent("mllm")


def test_all_three_stages_in_their_order_each_with_its_model() -> None:
    made = stages(["holistic", "describe", "blend"], LLM, MLLM)
    assert [stage.name for stage in made] == list(STAGE_NAMES)
    assert [stage.backend for stage in made] == [LLM, MLLM, LLM]
    assert [stage.prompt for stage in made] == [(BUILTIN / f"{name}.txt").read_text() for name in STAGE_NAMES]


@pytest.mark.parametrize(
    ("names", "llm", "mllm", "line"),
    [
        (["holistic"], LLM, None, "stage holistic requires blend and describe; pass --stages"),
        (["holistic", "blend"], LLM, None, "stage holistic requires blend and describe; pass --stages"),
        (["blnd"], LLM, None, "did you mean 'blend'"),
        ([], LLM, None, "--stages is empty"),
        (["blend"], None, None, "stage blend requires a model; pass --llm"),
        (["describe"], None, None, "stage describe requires a model; pass --mllm"),
        (["describe"], LLM, MLLM, "--llm has no effect on stages describe"),
        (["blend"], LLM, MLLM, "--mllm has no effect on stages blend"),
    ],
)
def test_what_does_not_fit_together_is_one_line(names: list[str], llm: Any, mllm: Any, line: str) -> None:
    with pytest.raises(UsageError, match=line) as error:
        stages(names, llm, mllm)
    assert "\n" not in str(error.value)


def test_blend_quotes_every_reference_after_the_papers_examples() -> None:
    request = stages(["blend"], LLM, None)[0].build_request(ITEM, {})
    assert [m.role for m in request.messages] == ["system", *["user", "assistant"] * 3, "user"]
    lines = [f"Reference caption {k}: {text}" for k, text in enumerate(ITEM.references, 1)]
    assert request.messages[-1] == Message("user", "\n".join(lines))
    assert "a reference set of 5 image captions" in request.messages[0].text
    assert request.picture is None and request.truth is None and request.temperature == 0


def test_describe_shows_the_picture() -> None:
    request = stages(["describe"], None, MLLM)[0].build_request(ITEM, {})
    assert request.messages == (Message("user", "Briefly describe the content of the image."),)
    assert request.picture is ITEM.picture and request.truth is ITEM.truth


def test_holistic_puts_people_first() -> None:
    request = stages(STAGE_NAMES, LLM, MLLM)[2].build_request(
        ITEM, {"blend": "a {describe} star", "describe": "a red star"}
    )
    asked = "Correct caption: a {describe} star\nNew noisy caption: a red star"  # braces of a caption stay
    assert request.messages[-1].text == asked and request.picture is None


def test_an_item_without_what_the_stage_reads_is_a_backend_error() -> None:
    made = stages(STAGE_NAMES, LLM, MLLM)
    with pytest.raises(BackendError, match="no reference to blend"):
        made[0].build_request(Item("x", ITEM.picture), {})
    with pytest.raises(BackendError, match="no answer from stage describe"):
        made[2].build_request(ITEM, {"blend": "a star"})


def test_the_second_question_differs_and_says_why() -> None:
    stage = stages(["blend"], LLM, None)[0]
    first, second = stage.build_request(ITEM, {}), stage.build_retry(ITEM, {}, "I'm sorry, but I cannot help.")
    assert second.messages[:-1] == first.messages[:-1]
    assert second.messages[-1].text.startswith(first.messages[-1].text)
    assert "at most 60 words" in second.messages[-1].text and "a refusal" in second.messages[-1].text
    assert second.temperature == AGAIN_TEMPERATURE and second.seed is not None


def test_a_file_of_ones_own_changes_its_stage_and_no_other(tmp_path: Path) -> None:
    own = stages(STAGE_NAMES, LLM, MLLM, copied(tmp_path, "describe", "Briefly describe", "Describe at length"))
    usual = stages(STAGE_NAMES, LLM, MLLM)
    assert [a.prompt != b.prompt for a, b in zip(own, usual, strict=True)] == [False, True, False]
    assert own[1].build_request(ITEM, {}).messages[0].text == "Describe at length the content of the image."


def test_braces_that_are_no_placeholder_stay(tmp_path: Path) -> None:
    folder = copied(tmp_path, "blend", "Reference caption {number}: {reference}", '{"text": "{reference}"} {}')
    request = stages(["blend"], LLM, None, folder)[0].build_request(Item("x", ITEM.picture, ("a {blend} star",)), {})
    assert request.messages[-1].text == '{"text": "a {blend} star"} {}'


def test_a_folder_without_prompts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"contains none of blend\.txt"):
        stages(["blend"], LLM, None, tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        stages(["blend"], LLM, None, tmp_path / "nowhere")
