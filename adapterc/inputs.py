"""What a model is run on: tokenized text, ids that the user gives, or seeded ids where neither is given."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from adapterc.errors import UserError
from adapterc.models import Loaded

DEFAULT_TEXTS = (
    "The cat sleeps on the warm windowsill.",
    "A kitten naps in the sun by the window.",
    "Quarterly revenue rose by twelve percent.",
    "The company's earnings grew this quarter.",
)
DEFAULT_BATCH, DEFAULT_LENGTH = 2, 16


def text_inputs(loaded: Loaded, texts: Sequence[str]) -> dict[str, torch.Tensor]:
    """Tokenized and padded on the right, int64 `[len(texts), length]`. Raises UserError ADC504 where the model has no tokenizer."""
    if loaded.tokenizer is None:
        raise UserError("ADC504", f"{loaded.source.text}: this model has no tokenizer", "give token ids with --ids 1,2,3")
    encoded = loaded.tokenizer(list(texts), padding=True, truncation=True, max_length=512, return_tensors="pt")
    return {name: value for name, value in encoded.items() if isinstance(value, torch.Tensor)}


def id_inputs(loaded: Loaded, text: str) -> dict[str, torch.Tensor]:
    """`1,2,3` is one sequence, `1,2,3;4,5` two (the shorter is padded with 0 on the right and masked). Raises UserError ADC504."""
    try:
        rows = [[int(number) for number in row.split(",")] for row in text.split(";")]
    except ValueError:
        raise UserError(
            "ADC504", f"--ids {text}: these are not token ids", "write numbers with commas, and `;` between sequences"
        ) from None
    size = vocabulary(loaded)
    for number in (number for row in rows for number in row):
        if not 0 <= number < size:
            raise UserError(
                "ADC504",
                f"--ids {text}: token {number} is outside the vocabulary of {size}",
                "use ids from 0 to the vocabulary's size less one",
            )
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


def seeded_inputs(loaded: Loaded, batch: int = DEFAULT_BATCH, length: int = DEFAULT_LENGTH) -> dict[str, torch.Tensor]:
    """Token ids that the seed of the model's source draws, int64 `[batch, length]`; pixels where the model takes no ids."""
    generator = torch.Generator().manual_seed(loaded.source.seed)
    if loaded.model.main_input_name == "pixel_values":
        vision = getattr(loaded.config, "vision_config", loaded.config)
        side, channels = int(vision.image_size), int(getattr(vision, "num_channels", 3))
        return {"pixel_values": torch.randn(batch, channels, side, side, generator=generator)}
    ids = torch.randint(4, vocabulary(loaded), (batch, length), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def choose(loaded: Loaded, texts: Sequence[str], ids: str | None) -> dict[str, torch.Tensor]:
    """The inputs that the command's options ask for. Raises UserError ADC504 where both are given."""
    if texts and ids:
        raise UserError("ADC504", "--text and --ids are both given", "give one of them")
    if ids:
        return id_inputs(loaded, ids)
    if texts or loaded.tokenizer is not None:
        return text_inputs(loaded, texts or DEFAULT_TEXTS)
    return seeded_inputs(loaded)


def vocabulary(loaded: Loaded) -> int:
    """The number of token ids. Raises UserError ADC504 for a model that takes neither ids nor an image."""
    size = getattr(loaded.config.get_text_config(), "vocab_size", None)
    if not isinstance(size, int) or loaded.model.main_input_name not in ("input_ids", "decoder_input_ids"):
        raise UserError(
            "ADC504",
            f"{loaded.source.text}: this model takes `{loaded.model.main_input_name}`, and inputs can be made for token ids and images only",
            "name the text or vision part of the model, such as config:BertModel or config:ViTModel",
        )
    return size
