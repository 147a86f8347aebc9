"""Tokens from recorded steps are those of the plain loop. On a CPU a recorder stands for CUDA's graphs: it notes every
operation with the tensors that it reads and writes, and replays them there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from PIL import Image
from tiny_blip import save_blip
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from tellapart.captioners import load_captioner
from tellapart.captioners.captioner import Captioner
from tellapart.captioners.cuda_graphs import StepGraphs
from tellapart.models.decoding import Decoding

DECODINGS = {
    "greedy": Decoding(max_tokens=7),
    "sample": Decoding(kind="sample", samples=3, max_tokens=7, temperature=1.5),
    "beam": Decoding(kind="beam", beams=3, samples=2, max_tokens=7),
}


# A number that the host waits for, and a number that it copies to the device.
NOT_ON_A_GPU = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.lift_fresh.default)


class Recorder(TorchDispatchMode):
    """Notes operations; `replay` runs them again into the tensors that they wrote then.

    What was there before the recording is not held, as CUDA's graphs do not hold it.
    """

    records = False
    written: ClassVar[set[int]] = set()  # storages of this recording

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[Callable[..., Any], list[Any], Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in NOT_ON_A_GPU:
            raise RuntimeError(f"CUDA does not record {function}")
        result = function(*args, **(kwargs or {}))
        Recorder.written |= {storage(x) for x in tree_leaves(result) if isinstance(x, torch.Tensor)}
        leaves, shape = tree_flatten((args, kwargs or {}))
        self.noted.append((function, [self.noted_as(leaf) for leaf in leaves], shape, result))
        return result

    def noted_as(self, leaf: Any) -> Any:
        foreign = isinstance(leaf, torch.Tensor) and storage(leaf) not in Recorder.written
        return weakref.ref(leaf) if foreign else leaf

    def capture_begin(self, **options: Any) -> None:
        assert options["capture_error_mode"] == "thread_local"
        Recorder.records = True
        self.__enter__()

    def capture_end(self) -> None:
        self.__exit__(None, None, None)
        Recorder.records = False

    def replay(self) -> None:
        for function, leaves, shape, result in self.noted:
            read = [leaf() if isinstance(leaf, weakref.ref) else leaf for leaf in leaves]
            for leaf, found in zip(leaves, read, strict=True):
                assert found is not None or leaf is None, f"{function} reads what was given back"
            args, kwargs = tree_unflatten(read, shape)
            for old, new in zip(tree_leaves(result), tree_leaves(function(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Recorder]]:
    """The recorders of all steps."""
    found: list[Recorder] = []

    def make() -> Recorder:
        found.append(Recorder())
        return found[-1]

    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, value in {
        "CUDAGraph": make,
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda which: nullcontext(),
        "graph_pool_handle": lambda: (0, 0),
        "mem_get_info": lambda device: (2**40, 2**40),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr("tellapart.captioners.blip_attention.reads_at_once", lambda tensor: not Recorder.records)
    return found


def visual_of(captioner: Captioner, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    noise = torch.randint(0, 256, (5, 40, 60, 3), generator=generator, dtype=torch.uint8)
    with torch.no_grad():
        return captioner.encode(captioner.pixels([Image.fromarray(picture.numpy()) for picture in noise]))


def tokens_of(captioner: Captioner, visual: torch.Tensor, decoding: Decoding, graphs: StepGraphs | None) -> Any:
    """Captions by the loop, or by ``graphs``; the same numbers are drawn."""
    from tellapart.captioners.decoding import generate_tokens, make_loop, to_rollout

    torch.manual_seed(3)
    with torch.no_grad():
        uniform_RT = decoding.uniform(len(visual), visual.device)
        state = captioner.prefill(visual, decoding.max_tokens)
        if decoding.samples > 1 and decoding.kind != "beam":
            state = state.select(torch.arange(len(visual) * decoding.samples, device=visual.device) // decoding.samples)
        logits_NV = captioner.compute_logits(state.hidden_N1H[:, -1])
        if graphs is not None:
            tokens_RT = graphs(captioner, state, logits_NV, decoding, uniform_RT)
        else:
            loop = make_loop(captioner, state, logits_NV, decoding, uniform_RT)
            tokens_RT = generate_tokens(loop, decoding.max_tokens)
    return to_rollout(tokens_RT, captioner.tokenizer, captioner.stop_tokens, decoding.samples).texts


WORDS = ["a", "picture", "of", "red", "dog", "on", "grass", "cat"]


@pytest.fixture(scope="module")
def tiny_blip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_blip(tmp_path_factory.mktemp("blip"), WORDS, layers=2)


@pytest.fixture(params=["tiny_blip", "tiny_captioner"])
def captioner(request: pytest.FixtureRequest) -> Captioner:
    captioner = load_captioner(str(request.getfixturevalue(request.param)), "cpu", "fp32")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # tiny weights write one word for every picture
        for parameter in captioner.model.parameters():
            if parameter.ndim > 1:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    captioner.model.eval()
    return captioner


@pytest.mark.long
@pytest.mark.parametrize("kind", DECODINGS)
def test_recorded_steps_write_what_the_loop_writes(captioner: Captioner, kind: str, recorded: list[Recorder]) -> None:
    graphs, decoding = StepGraphs(), DECODINGS[kind]
    written = set()
    for number in range(4):
        visual = visual_of(captioner, number)
        expected = tokens_of(captioner, visual, decoding, None)
        assert tokens_of(captioner, visual, decoding, graphs) == expected
        assert len(recorded) == (0 if number == 0 else decoding.max_tokens)  # the first time as the loop does
        written.update(expected)
    assert len(written) > 4, "the test needs pictures that are told apart"


def test_weights_that_moved_are_recorded_anew(captioner: Captioner, recorded: list[Recorder]) -> None:
    graphs, decoding, visual = StepGraphs(), DECODINGS["sample"], visual_of(captioner, 0)
    for _ in range(2):
        tokens_of(captioner, visual, decoding, graphs)
    with torch.no_grad():  # in place, as an optimizer does: the graphs read the new ones
        for parameter in captioner.model.parameters():
            parameter.mul_(0.5)
    assert tokens_of(captioner, visual, decoding, graphs) == tokens_of(captioner, visual, decoding, None)
    assert len(recorded) == decoding.max_tokens
    for parameter in captioner.model.parameters():
        parameter.data = parameter.data * 3.0  # elsewhere
    assert tokens_of(captioner, visual, decoding, graphs) == tokens_of(captioner, visual, decoding, None)
    assert len(recorded) == decoding.max_tokens
    captioner.model.train()  # another mode has other kernels
    tokens_of(captioner, visual, decoding, graphs)
    assert len(recorded) == decoding.max_tokens


def test_few_shapes_are_kept_and_none_that_leave_no_memory(
    captioner: Captioner, recorded: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs, visual = StepGraphs(), visual_of(captioner, 0)
    for tokens in range(2, 9):
        for _ in range(2):
            tokens_of(captioner, visual, Decoding(max_tokens=tokens), graphs)
    assert len(graphs.recorded) == StepGraphs.MOST
    before = len(recorded)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2**40))
    for _ in range(3):
        tokens_of(captioner, visual, Decoding(max_tokens=9), graphs)
    assert len(recorded) == before


def test_a_model_that_waits_for_the_device_is_not_recorded(
    captioner: Captioner, recorded: list[Recorder], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = SimpleNamespace(clone_state=lambda: 0, graphsafe_set_state=lambda state: None)
    monkeypatch.setattr(torch.cuda, "default_generators", [generator])
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    waits(captioner, monkeypatch)
    graphs, decoding = StepGraphs(), DECODINGS["sample"]
    for number in range(4):
        visual = visual_of(captioner, number)
        assert tokens_of(captioner, visual, decoding, graphs) == tokens_of(captioner, visual, decoding, None)
    assert graphs.refused and not any(graphs.recorded.values()) and len(recorded) == 1
    assert ": cannot record its steps as CUDA graphs, so they run one by one:" in capsys.readouterr().err


def waits(captioner: Captioner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a model look at a number of its own in each step."""
    decode = captioner.decode

    def looking(state: Any, tokens_NT: torch.Tensor) -> torch.Tensor:
        hidden = decode(state, tokens_NT)
        return hidden + 0 * float(hidden.sum())

    monkeypatch.setattr(captioner, "decode", looking)


@pytest.mark.gpu
def test_on_a_gpu_a_model_that_waits_goes_on_without_graphs(
    captioner: Captioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    captioner.model.to("cuda").train()
    waits(captioner, monkeypatch)
    graphs, decoding = StepGraphs(), DECODINGS["sample"]
    for number in range(4):
        visual = visual_of(captioner, number)
        assert tokens_of(captioner, visual, decoding, graphs) == tokens_of(captioner, visual, decoding, None)
    assert graphs.refused


@pytest.mark.gpu
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", DECODINGS)
def test_cuda_graphs_write_what_the_loop_writes(captioner: Captioner, kind: str, training: bool) -> None:
    """In fp32, and in bf16 by autocast; in training, with dropout, the same numbers are drawn.

    Attention by products: which of torch's fused kernels runs may differ while a graph is recorded, and each draws
    dropout in an order of its own.
    """
    captioner.model.to("cuda").train(training)
    for bf16 in (False, True):
        graphs, decoding, same = StepGraphs(), DECODINGS[kind], 0
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16), sdpa_kernel(SDPBackend.MATH):
            for number in range(5):
                visual = visual_of(captioner, number)
                texts = tokens_of(captioner, visual, decoding, graphs)
                same += texts == tokens_of(captioner, visual, decoding, None)
                with torch.no_grad():
                    for parameter in captioner.model.parameters():
                        parameter.mul_(0.99)
                torch.clear_autocast_cache()
        assert same == 5, (bf16, same)
        assert any(steps is not None for steps in graphs.recorded.values())
