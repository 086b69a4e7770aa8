"""`adapterc.load` and sentence-transformers' backend `spyre`: the class, the signatures and the results are stock's, and it all comes off again."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers

import adapterc.load as loading
from adapterc import models, specs
from adapterc.build import build_specs
from adapterc.errors import UserError
from adapterc.spyre_runtime.settings import settings
from adapterc.spyre_runtime.tensor import SpyreTensor

BERT = "config:BertModel,hidden_size=128,num_hidden_layers=1,num_attention_heads=2,intermediate_size=256,vocab_size=300"
GPT2 = "config:GPT2LMHeadModel,n_embd=128,n_layer=1,n_head=2,vocab_size=300,n_positions=64"
FOR_BERT = ("embedding.yaml", "masks.yaml", "prologue.yaml")


@pytest.fixture(scope="module")
def patches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The adapters that a BERT needs, built once."""
    folder = tmp_path_factory.mktemp("load") / "patches_for_bert"
    assert build_specs(tuple(specs.shipped_folder() / name for name in FOR_BERT), folder).ok
    return folder


def ids() -> dict[str, torch.Tensor]:
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    return {"input_ids": torch.arange(16).reshape(2, 8) + 5, "attention_mask": mask}


def on_device(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.to("spyre") for name, value in inputs.items()}


def test_the_model_is_the_class_that_the_user_would_have_had_with_stock_signatures(patches: Path) -> None:
    stock = models.load(BERT).model
    model = loading.load(BERT, patches=patches)
    assert type(model) is type(stock) is transformers.BertModel
    assert isinstance(model, transformers.PreTrainedModel)
    assert model.config.to_dict() == {**stock.config.to_dict(), "dtype": model.config.to_dict()["dtype"]}
    for name in ("forward", "save_pretrained", "get_input_embeddings", "resize_token_embeddings"):
        assert inspect.signature(getattr(model, name)) == inspect.signature(getattr(stock, name))
        assert getattr(type(model), name) is getattr(type(stock), name)
    assert all(isinstance(p.data, SpyreTensor) or p.device.type == "spyre" for p in model.parameters())
    assert not model.training
    loading.unload(model)


def test_what_it_returns_is_what_stock_returns(patches: Path) -> None:
    stock = models.load(BERT).model
    with settings(numerics="fp32"), torch.no_grad():
        model = loading.load(BERT, patches=patches)
        found = model(**on_device(ids()))
        expected = stock(**ids())
        assert type(found) is type(expected)
        assert found.keys() == expected.keys()
        difference = (found.last_hidden_state.to("cpu", torch.float32) - expected.last_hidden_state)[ids()["attention_mask"].bool()]
        assert difference.abs().max() < 1e-5 * expected.last_hidden_state.abs().max()
        loading.unload(model)


def test_a_model_that_is_given_is_changed_in_place_and_given_back(patches: Path, tmp_path: Path) -> None:
    model = models.load(BERT).model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    members = {name: set(vars(module)) for name, module in model.named_modules()}
    with torch.no_grad():
        expected = model(**ids()).last_hidden_state
    with settings(numerics="fp32"):  # so that the weights come back unrounded
        assert loading.load(model, patches=patches) is model
        with torch.no_grad():
            model(**on_device(ids()))
        assert loading.unload(model) is model
    assert all(parameter.device.type == "cpu" and parameter.dtype == torch.float32 for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert {name: set(vars(module)) for name, module in model.named_modules()} == members
    with torch.no_grad():
        assert torch.equal(model(**ids()).last_hidden_state, expected)
    model.save_pretrained(tmp_path / "saved")
    models.load(BERT).model.save_pretrained(tmp_path / "stock")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "stock" / name).read_bytes()


def test_a_second_load_after_unload_works_and_a_second_unload_is_an_error(patches: Path) -> None:
    model = models.load(BERT).model
    for _ in range(2):
        loading.load(model, patches=patches)
        loading.unload(model)
    with pytest.raises(UserError, match="ADC509"):
        loading.unload(model)


def test_the_format_is_the_models_own_half_then_its_checkpoints_then_float16() -> None:
    model = models.load(BERT).model
    model.config.dtype = None
    assert loading.half_of(model) is torch.float16
    model.config.dtype = torch.float32
    assert loading.half_of(model) is torch.float16
    model.config.dtype = torch.bfloat16
    assert loading.half_of(model) is torch.bfloat16
    assert loading.half_of(model.to(torch.float16)) is torch.float16  # as it was given
    assert loading.half_of(torch.nn.Linear(2, 2)) is torch.float16


def test_two_models_of_one_class_do_not_know_of_each_other(patches: Path) -> None:
    first, second = models.load(BERT).model, models.load(BERT + ",seed=1").model
    with torch.no_grad():
        expected = second(**ids()).last_hidden_state
        loading.load(first, patches=patches)
        assert torch.equal(second(**ids()).last_hidden_state, expected)
    assert second._compiled_call_impl is None
    loading.unload(first)


def test_what_is_no_model_is_refused_and_nothing_is_left_behind(patches: Path, tmp_path: Path) -> None:
    for wrong, code in ((3, "ADC501"), (str(tmp_path / "none"), "ADC501"), ("config:NoSuchModel", "ADC502")):
        with pytest.raises(UserError, match=code):
            loading.load(wrong, patches=patches)  # type: ignore[call-overload]
    with pytest.raises(UserError, match="ADC505"):
        loading.load(BERT, patches=tmp_path)
    assert not loading._handles


@pytest.mark.slow
@pytest.mark.parametrize("generation", [{}, {"num_beams": 2}, {"do_sample": True, "top_k": 5}])
def test_generate_is_stock_generate(generation: dict[str, object]) -> None:
    stock = models.load(GPT2).model
    prompt = {"input_ids": torch.tensor([[0, 0, 7, 9], [5, 6, 7, 8]]), "attention_mask": torch.tensor([[0, 0, 1, 1], [1] * 4])}
    options = {"max_new_tokens": 4, "do_sample": False, "cache_implementation": "static", "pad_token_id": 0, **generation}
    torch.manual_seed(0)
    expected = stock.generate(**prompt, **options)  # type: ignore[operator]
    with settings(numerics="fp32"):
        model = loading.load(GPT2)
        assert type(model).generate is type(stock).generate
        torch.manual_seed(0)
        found = model.generate(**on_device(prompt), **options)  # type: ignore[operator]
        loading.unload(model)
    assert found.to("cpu").tolist() == expected.tolist()


SENTENCES = (
    "The cat sleeps on the warm windowsill.",
    "A kitten naps.",
    "Quarterly revenue rose by twelve percent.",
    "no",
    "The company earned more.",
)


@pytest.fixture(scope="module")
def encoders() -> Iterator[tuple[object, object]]:
    """all-MiniLM-L6-v2 with its real weights: stock, and with backend spyre."""
    from sentence_transformers import SentenceTransformer

    import adapterc.st_backend  # noqa: F401 - teaches it the backend
    from adapterc.demo import minilm_folder

    yield SentenceTransformer(minilm_folder(), device="cpu"), SentenceTransformer(minilm_folder(), backend="spyre", device="cpu")  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_sentence_embeddings_are_near_stock_at_every_batch_size(encoders: tuple[object, object], batch_size: int) -> None:
    stock, spyre = encoders
    expected = stock.encode(list(SENTENCES), batch_size=batch_size, convert_to_tensor=True)  # type: ignore[attr-defined]
    found = spyre.encode(list(SENTENCES), batch_size=batch_size, convert_to_tensor=True)  # type: ignore[attr-defined]
    assert found.device.type == "cpu"
    assert found.dtype == torch.float32
    assert found.shape == expected.shape == (len(SENTENCES), 384)
    assert torch.nn.functional.cosine_similarity(found, expected).min() > 0.999
    assert torch.allclose(found.norm(dim=-1), torch.ones(len(SENTENCES)), atol=1e-5)


@pytest.mark.slow
def test_similarity_prompts_and_output_kinds_are_sentence_transformers_own(encoders: tuple[object, object]) -> None:
    stock, spyre = encoders
    texts = list(SENTENCES[:3])
    a, b = (model.encode(texts) for model in encoders)  # type: ignore[attr-defined]
    assert type(a) is type(b)
    assert (stock.similarity(a, a) - spyre.similarity(b, b)).abs().max() < 5e-3  # type: ignore[attr-defined]
    prompted = [model.encode(texts, prompt="query: ", convert_to_tensor=True) for model in encoders]  # type: ignore[attr-defined]
    assert torch.nn.functional.cosine_similarity(*prompted).min() > 0.999
    assert torch.nn.functional.cosine_similarity(prompted[1], torch.tensor(b)).max() < 0.999, "the prompt made a difference"
    unit = spyre.encode(texts[0], normalize_embeddings=True, convert_to_tensor=True)  # type: ignore[attr-defined]
    assert unit.shape == (384,)
    assert torch.allclose(unit.norm(), torch.ones(()), atol=1e-5)
    assert spyre.get_embedding_dimension() == 384  # type: ignore[attr-defined]
    assert spyre.max_seq_length == stock.max_seq_length  # type: ignore[attr-defined]


@pytest.mark.slow
def test_other_backends_are_untouched(encoders: tuple[object, object]) -> None:
    stock, _ = encoders
    assert isinstance(stock[0].auto_model, transformers.BertModel)  # type: ignore[index]
    assert next(stock[0].auto_model.parameters()).device.type == "cpu"  # type: ignore[index]
