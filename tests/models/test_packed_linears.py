"""Linear layers by oneDNN: equal to torch's, and the module's own again afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from models.linear_layers import AVX512, layer

from tellapart.models import onednn
from tellapart.models import packed_linears as packing
from tellapart.models.onednn import runs_on_onednn, speed_up
from tellapart.models.packed_linears import PackedLinear, packed_linears
from tellapart.models.replaced_forward import identity, replaced_forward

DTYPES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
CPU_HAS_IT = pytest.mark.skipif(not runs_on_onednn(torch.nn.Linear(2, 2)), reason="torch has no oneDNN for this CPU")


@pytest.mark.long
@CPU_HAS_IT
@pytest.mark.parametrize("kind", ["Linear", "without bias", "Conv1D"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (577,), (2, 7), (3, 1, 5)])
@pytest.mark.parametrize("room", [2**31, 0])
def test_products_are_those_of_torch(
    kind: str, dtype: torch.dtype, shape: tuple[int, ...], room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MOST_BYTES", room)
    monkeypatch.setattr("tellapart.models.precision.multiplies_in_bf16", lambda _: True)
    module = layer(kind, dtype)
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this CPU does not multiply in bf16")
    x = torch.randn(*shape, 48, generator=torch.manual_seed(1)).to(dtype)
    strided = x.repeat_interleave(2, -1)[..., ::2]
    assert not strided.is_contiguous() or strided.numel() == 1
    with torch.no_grad():
        plain = module(x)
        with packed_linears(torch.nn.Sequential(module)):
            fast = room > 0 or (kind != "Conv1D" and dtype == torch.float32)
            assert isinstance(vars(module).get("forward"), PackedLinear) == fast
            for given in (x, strided):
                product = module(given)
                assert product.dtype == dtype and product.shape == plain.shape
                assert (product - plain).abs().max() <= DTYPES[dtype]
        assert "forward" not in vars(module) and torch.equal(module(x), plain)


@AVX512
def test_layers_that_captioning_packs_are_given_back_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "LARGE", 0)
    module = layer("Linear", torch.float32)
    speed_up(module)
    before = vars(module)["forward"]
    with packed_linears(module):
        assert isinstance(vars(module)["forward"], PackedLinear)
    assert vars(module)["forward"] is before


@CPU_HAS_IT
def test_gradients_and_other_dtypes_take_the_modules_own_way() -> None:
    module, x = layer("Linear", torch.float32), torch.randn(3, 48, requires_grad=True)
    double = layer("Linear", torch.float64)
    with packed_linears(torch.nn.ModuleList([module, double])):
        module(x).sum().backward()
        assert "forward" not in vars(double)
        with torch.no_grad():
            assert module(x[:0]).shape == (0, 30)
    assert x.grad is not None and torch.allclose(x.grad, module.weight.sum(0).expand(3, -1))


@CPU_HAS_IT
def test_an_error_inside_gives_the_layers_back() -> None:
    module = layer("Linear", torch.float32)
    with pytest.raises(RuntimeError, match="mine"), packed_linears(module):
        raise RuntimeError("mine")
    assert "forward" not in vars(module)


@CPU_HAS_IT
def test_the_last_of_two_that_use_a_model_gives_the_layers_back() -> None:
    module = layer("Linear", torch.float32)
    first, second = packed_linears(module), packed_linears(module)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert isinstance(vars(module)["forward"], PackedLinear)
    second.__exit__(None, None, None)
    assert "forward" not in vars(module)


@CPU_HAS_IT
def test_what_replaces_a_layer_for_a_moment_leaves_it_packed() -> None:
    module, x = layer("Linear", torch.float32), torch.ones(2, 48)
    with packed_linears(module), torch.no_grad():
        with replaced_forward(module, identity):
            assert module(x) is x
        assert isinstance(vars(module)["forward"], PackedLinear) and module(x).shape == (2, 30)
    assert "forward" not in vars(module)


@CPU_HAS_IT
def test_an_activation_is_computed_with_its_layer() -> None:
    """BLIP's two kinds of layers; what has another activation keeps it."""
    from transformers import BlipConfig, BlipForConditionalGeneration

    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**small, "vocab_size": 50, "encoder_hidden_size": 32, "bos_token_id": 1}
    config = BlipConfig(text_config=text, vision_config={**small, "image_size": 32})
    model = BlipForConditionalGeneration(config).eval()
    tower, words = model.vision_model.encoder.layers[0].mlp, model.text_decoder.bert.encoder.layer[0].intermediate
    quick = type(tower)(BlipConfig(vision_config={**small, "hidden_act": "quick_gelu"}).vision_config)
    x = torch.randn(2, 577, 32, generator=torch.manual_seed(0))
    for module, fused in ((tower, True), (words, True), (quick, False)):
        activation = module.activation_fn if hasattr(module, "activation_fn") else module.intermediate_act_fn
        plain = module(x)
        with packed_linears(module):
            assert ("forward" in vars(activation)) == fused
            with_gradient = module(x)
            with torch.no_grad():
                assert torch.allclose(module(x), plain, atol=1e-5)
        assert torch.equal(with_gradient, plain) and with_gradient.requires_grad
        assert "forward" not in vars(activation) and torch.equal(module(x), plain)


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("DNNL_MAX_CPU_ISA") != "SSE41", reason="this process has all kernels of oneDNN")
def test_what_users_run_is_tested_with_all_kernels_of_onednn() -> None:
    """On AMD the tests limit oneDNN to kernels without bf16; here these and the families in bf16 run without limit."""
    here, tests = Path(__file__), Path(__file__).parents[1]
    files = map(str, (here, here.with_name("test_onednn.py"), tests / "captioners" / "test_families_in_bf16.py"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *files],
        capture_output=True, text=True, check=False, env=os.environ | {"DNNL_MAX_CPU_ISA": "ALL"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    if torch.cpu._is_avx512_supported():
        assert "does not multiply in bf16" not in done.stdout, "these were skipped, and this CPU can run them"
