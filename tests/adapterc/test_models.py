"""MODEL arguments: folders and `config:` specs, and what is said of wrong ones."""

from pathlib import Path

import pytest
import torch

from adapterc import models
from adapterc.errors import UserError

TINY = "hidden_size=64,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64,vocab_size=99"


def test_a_config_spec_names_class_overrides_and_seed() -> None:
    source = models.parse_source("config:BertModel,num_hidden_layers=2,layer_types=[a,b],seed=7")
    assert source.class_name == "BertModel"
    assert source.overrides == {"num_hidden_layers": 2, "layer_types": ["a", "b"]}
    assert source.seed == 7


@pytest.mark.parametrize("name", ["bert", "BertConfig", "BertModel"])
def test_a_family_is_built_from_its_type_config_or_model_class(name: str) -> None:
    loaded = models.load(f"config:{name},{TINY}")
    assert type(loaded.model).__name__ == "BertModel"
    assert not loaded.model.training
    assert loaded.tokenizer is None


def test_the_seed_decides_the_weights_and_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    first, again, other = (models.load(f"config:bert,{TINY},seed={seed}").model.get_input_embeddings().weight for seed in (1, 1, 2))  # type: ignore[operator]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("./no-such-folder", "ADC501", "no such model folder"),
        ("config:BertModle", "ADC502", "BertModel"),
        ("config:BertModel,num_hidden_layer=2", "ADC502", "num_hidden_layers"),
        ("config:BertModel,num_hidden_layers", "ADC502", "field=value"),
        ("config:BertModel,num_hidden_layers=[1", "ADC502", "YAML"),
        ("config:BertModel,seed=x", "ADC502", "seed"),
        ("config:BertModel,hidden_size=65,num_attention_heads=2", "ADC503", "cannot build"),
        ("config:", "ADC502", "knows no"),
        ("config:torch.nn.Linear", "ADC502", "knows no"),
    ],
)
def test_a_wrong_model_gets_one_sentence(text: str, code: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        models.load(text)
    assert caught.value.code == code
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_that_save_pretrained_wrote_is_loaded_as_it_was(tmp_path: Path) -> None:
    model = models.load(f"config:BertForMaskedLM,{TINY}").model
    model.save_pretrained(tmp_path)
    loaded = models.load(str(tmp_path))
    assert type(loaded.model) is type(model)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.model.parameters(), strict=True))


def test_a_folder_without_weights_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UserError, match="ADC503"):
        models.load(str(tmp_path))
