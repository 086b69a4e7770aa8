"""`SentenceTransformer(path, backend="spyre")`: importing this module teaches sentence-transformers the name.

The transformer runs on the device; tokenizing, pooling and normalisation stay where sentence-transformers does them, on the host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from sentence_transformers.base.modules import transformer as st_transformer

from adapterc.load import DEVICE, load

BACKEND = "spyre"


class HostFacade(torch.nn.Module):
    """Stands for the device model inside sentence-transformers: takes host tensors, gives float32 host tensors.

    The device model is no submodule, so that moving the SentenceTransformer between host devices leaves it where it is.
    """

    def __init__(self, model: transformers.PreTrainedModel) -> None:
        super().__init__()
        self._device_model = (model,)

        @functools.wraps(model.forward)  # sentence-transformers asks for the signature
        def forward(**inputs: Any) -> Any:
            return _run(model, inputs)

        self.forward = forward
        self.device = torch.device("cpu")  # where sentence-transformers shall send what it makes

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_device_model"][0], name)


def _run(model: transformers.PreTrainedModel, inputs: Mapping[str, Any]) -> Any:
    with torch.no_grad():
        output = model(**{name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in inputs.items()})
    return type(output)(**{name: _to_host(value) for name, value in output.items()})


def _to_host(value: Any) -> Any:
    match value:
        case torch.Tensor():
            return value.to("cpu", torch.float32) if value.is_floating_point() else value.to("cpu")
        case tuple():
            return tuple(map(_to_host, value))
    return value


def register() -> None:
    """Add the backend's name to sentence-transformers' loader; doing it twice changes nothing."""
    stock: Callable[..., Any] = st_transformer.Transformer._load_model
    if hasattr(stock, "__wrapped__"):
        return

    @functools.wraps(stock)
    def load_model(
        self: Any, model_name_or_path: str, transformer_task: Any, config: Any, backend: str, is_peft_model: bool, **kwargs: Any
    ) -> Any:
        if backend != BACKEND:
            return stock(self, model_name_or_path, transformer_task, config, backend, is_peft_model, **kwargs)
        return HostFacade(load(stock(self, model_name_or_path, transformer_task, config, "torch", is_peft_model, **kwargs)))

    st_transformer.Transformer._load_model = load_model


register()
