"""What depends on weights and constants only is loaded once: no gather is left on the device."""

from __future__ import annotations

import torch
from torch import nn

from adapterc.attach import rules_of
from adapterc.codegen.runtime import PatchSet
from adapterc.dsl.loader import load_all
from adapterc.specs import find
from adapterc.spyre_runtime.backend import clear_compile_log, compile_log
from adapterc.spyre_runtime.settings import settings


class RelativeBias(nn.Module):
    """The position bias of MPNet and T5: a table looked up by the distance between places, which no input changes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 64)
        self.out = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        distance = (places[None, :] - places[:, None]).clamp(-3, 3) + 3
        return self.out(x) + self.table(distance).sum(1)


def test_a_table_that_is_looked_up_by_constants_is_loaded() -> None:
    shipped = [path for path in find(()) if path.stem in ("prologue", "embedding")]
    patches = PatchSet(tuple(rule for adapter in load_all(shipped) for rule in rules_of(adapter)))
    torch.manual_seed(0)
    model, x = RelativeBias().eval(), torch.randn(2, 6, 64)
    expected = model(x)
    clear_compile_log()
    with settings(numerics="fp32"), torch.no_grad():
        device = RelativeBias().eval()
        device.load_state_dict(model.state_dict())
        device = device.to("spyre", torch.float16)
        with patches.patched(device):
            found = torch.compile(device, backend="spyre", dynamic=False)(x.to("spyre", torch.float16)).to("cpu", torch.float32)
    assert (found - expected).abs().max() < 1e-4
    (record,) = compile_log()
    compilation = record.compilation
    assert compilation is not None and compilation.fallbacks == () and compilation.restickifies == 0
    assert record.ops["load"] > 3 and record.ops["host"] == 0
