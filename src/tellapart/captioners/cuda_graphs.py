"""CUDA graphs: records a decoding step once per shape and replays it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tellapart.captioners.decoding import RunningCount, generate_tokens, make_loop
from tellapart.captioners.kv_cache import KVCache
from tellapart.errors import first_line
from tellapart.models.decoding import Decoding
from tellapart.utils.messages import say_once


class StepGraphs:
    """Generates tokens on a GPU with CUDA graphs, one per token, for batches whose shapes have been seen before.

    Small batches are bound by kernel launches, of which there are hundreds per token; a graph launches all of them at
    once. The first batch of a shape runs `generate_tokens`, the second batch is recorded, and later batches are copied
    to the inputs of the recorded kernels. Recordings are keyed by the shape and by everything else that the kernels
    depend on: the addresses of the weights, the model's mode, the decoding settings, and autocast.
    """

    MOST = 4  # maximum number of recorded shapes
    SHARE = 0.25  # fraction of free memory for one recording's inputs; its steps need about three times as much memory

    def __init__(self) -> None:
        self.recorded: OrderedDict[Any, RecordedSteps | None] = OrderedDict()
        self.refused = False

    def __call__(
        self,
        captioner: Any,
        state: KVCache,
        logits_NV: torch.Tensor,
        decoding: Decoding,
        uniform_RT: torch.Tensor | None,
    ) -> torch.Tensor:
        """Generates tokens_RT. Replays the recorded steps if these shapes have been recorded; otherwise runs
        `generate_tokens`.
        """
        loop = make_loop(captioner, state, logits_NV, decoding, uniform_RT)
        cached = [] if self.refused else state.tensors()
        if not cached:
            return generate_tokens(loop, decoding.max_tokens)
        inputs = [*cached, logits_NV, *([] if uniform_RT is None else [uniform_RT])]
        key = self._key(captioner, inputs, decoding)
        known, steps = key in self.recorded, self.recorded.pop(key, None)
        if known and steps is None and self._fits(inputs):
            steps = self._record(captioner, state, inputs, decoding)
        self.recorded[key] = steps
        while len(self.recorded) > self.MOST:
            self.recorded.popitem(last=False)
        return generate_tokens(loop, decoding.max_tokens) if steps is None else steps(inputs)

    def _record(
        self, captioner: Any, state: KVCache, inputs: Sequence[torch.Tensor], decoding: Decoding
    ) -> RecordedSteps | None:
        """Records the steps. If recording fails or memory runs out, returns None and never tries again."""
        try:
            return RecordedSteps(captioner, state.with_tensors, inputs, decoding)
        except RuntimeError as error:  # includes torch.OutOfMemoryError
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(generator.clone_state())  # the old state still awaits the end of recording
            self.refused = True
            self.recorded.clear()
            cause = first_line(error)
            say_once(f"{captioner.name}: cannot record its steps as CUDA graphs, so they run one by one: {cause}")
        return None

    def _fits(self, inputs: Sequence[torch.Tensor]) -> bool:
        needed = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
        return needed <= self.SHARE * torch.cuda.mem_get_info(inputs[0].device)[0]

    @staticmethod
    def _key(captioner: Any, inputs: Sequence[torch.Tensor], decoding: Decoding) -> Any:
        modules = list(modules_of(captioner.model))
        return (
            *((tuple(tensor.shape), tensor.dtype) for tensor in inputs),
            decoding.model_dump_json(),
            tuple(captioner.stop_tokens),
            tuple(captioner.suppressed_tokens),
            tuple(module.training for module in modules),
            torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None,
            tuple(
                tensor.data_ptr()
                for module in modules
                for tensor in (*module._parameters.values(), *module._buffers.values())
                if tensor is not None
            ),
        )


def modules_of(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yields a module and all its submodules. Five times as fast as ``modules()``, which also detects tied modules."""
    yield module
    for child in module._modules.values():
        if child is not None:
            yield from modules_of(child)


class RecordedSteps:
    """The steps of a decoding loop as CUDA graphs that share memory. Call it with inputs of the same shapes.

    ``inputs``: the tensors of the decoder's state, the first logits and, if tokens are sampled, the uniform random
    numbers. ``with_tensors``: function that restores a state from its tensors.
    """

    def __init__(
        self,
        captioner: Any,
        with_tensors: Callable[[Sequence[torch.Tensor]], KVCache],
        inputs: Sequence[torch.Tensor],
        decoding: Decoding,
    ) -> None:
        self.inputs = [tensor.clone() for tensor in inputs]
        drawn = decoding.kind not in ("greedy", "beam")
        *cached, logits_NV = self.inputs[:-1] if drawn else self.inputs
        state = with_tensors(cached)
        self.loop = make_loop(captioner, state, logits_NV, decoding, self.inputs[-1] if drawn else None)
        self.beginning = dict(vars(self.loop))  # keep the inputs of the first graph alive
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.running: list[torch.Tensor] = []
        stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream())
        torch.clear_autocast_cache()  # so that the first graph casts the weights
        with torch.cuda.stream(stream):
            for place in range(decoding.max_tokens):
                graph = torch.cuda.CUDAGraph()
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    self.loop.choose(place)
                    if place + 1 < decoding.max_tokens:
                        self.loop.decode(place)
                finally:
                    graph.capture_end()
                self.graphs.append(graph)
                self.running.append(self.loop.running_N)
        torch.clear_autocast_cache()
        torch.cuda.current_stream().wait_stream(stream)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Generates tokens_RT by replaying the recorded steps."""
        torch._foreach_copy_(self.inputs, list(inputs))
        running = RunningCount(self.inputs[0].device)
        for place, graph in enumerate(self.graphs):
            graph.replay()
            if not running.count(self.running[place]):
                break
        return self.loop.result(place + 1).clone()
