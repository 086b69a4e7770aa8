"""Every task on the stock API: `adapterc.load` gives the user's class, and stock pipelines, sentence-transformers and `generate` do the rest.

Tiny models with lively random weights; what stock gives on the CPU is what is expected. Without rounding, so that tokens can be compared one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from stock_compare import shipped
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import adapterc.load as loading
from adapterc.spyre_runtime.backend import compilations
from adapterc.spyre_runtime.settings import settings
from adapterc.tiny import enliven

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    *SPECIAL,
    *["the", "cat", "sat", "on", "a", "mat", "and", "saw", "dog", "who", "where", "is", "it", "under", "warm", "red", "house"],
]
SIZES = {"vocab_size": len(WORDS), "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}
BERT = SIZES | {"max_position_embeddings": 32, "pad_token_id": 0}
QWEN3 = SIZES | {"num_key_value_heads": 1, "head_dim": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEXTS = ["the cat [MASK] on the mat", "a dog [MASK]"]
PAIRS = [("who sat", "the cat sat"), ("where is it", "a dog under a mat")]
HALF = 5e-3  # results come back in float16, and pipelines pass them on so


@pytest.fixture(scope="module", autouse=True)
def without_rounding() -> Iterator[None]:
    """The shipped adapters as they are (the checker is tested elsewhere), and no rounding."""
    patches: Any = shipped()
    with pytest.MonkeyPatch.context() as patch, settings(numerics="fp32"):
        patch.setattr(loading, "_package", lambda _: patches)
        yield


@pytest.fixture(scope="module")
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name.strip('[]').lower()}_token": name for name in SPECIAL}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=32, **names)


def made(class_name: str, fields: dict[str, Any]) -> Any:
    model_class = getattr(transformers, class_name)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = model_class(model_class.config_class(**fields)).eval()
    enliven(model, 0)
    return model


def on_device(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.to("spyre") for name, value in inputs.items()}


def near(found: Any, expected: Any) -> bool:
    """The same keys, labels and tokens, and numbers as near as a half is."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(near(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(near, found, expected))
    return found == expected if isinstance(expected, str | int) else abs(float(found) - float(expected)) <= HALF * max(1, abs(expected))


PIPELINES = {
    "fill-mask": ("BertForMaskedLM", {}),
    "text-classification": ("BertForSequenceClassification", {"num_labels": 3}),
    "token-classification": ("BertForTokenClassification", {"num_labels": 3}),
    "feature-extraction": ("BertModel", {}),
}


@pytest.mark.parametrize("task", PIPELINES)
def test_a_stock_pipeline_runs_on_it(task: str, tokenizer: Any) -> None:
    class_name, fields = PIPELINES[task]
    model = made(class_name, BERT | fields)
    expected = transformers.pipeline(task, model=copy.deepcopy(model), tokenizer=tokenizer)(TEXTS, batch_size=2)
    loaded = loading.load(model)
    assert type(loaded) is getattr(transformers, class_name)
    found = transformers.pipeline(task, model=loaded, tokenizer=tokenizer)(TEXTS, batch_size=2)
    loading.unload(loaded)
    assert near(found, expected)


def test_a_span_answers_a_question(tokenizer: Any) -> None:
    model = made("BertForQuestionAnswering", BERT)
    inputs = dict(tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="pt"))
    with torch.no_grad():
        stock = model(**inputs)
        found = loading.load(model)(**on_device(inputs))
    loading.unload(model)
    real = inputs["attention_mask"].bool()
    for name in ("start_logits", "end_logits"):
        assert torch.allclose(found[name].to("cpu", torch.float32)[real], stock[name][real], atol=HALF)


def test_a_reranker_with_one_score_ranks_as_stock_does(tokenizer: Any, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    import adapterc.st_backend  # noqa: F401 - teaches it the backend

    made("BertForSequenceClassification", BERT | {"num_labels": 1}).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    stock, spyre = CrossEncoder(str(tmp_path), device="cpu"), CrossEncoder(str(tmp_path), device="cpu", backend="spyre")
    assert near(spyre.predict(PAIRS).tolist(), stock.predict(PAIRS).tolist())
    passages = [passage for _, passage in PAIRS]
    ranks = [[entry["corpus_id"] for entry in model.rank("who sat", passages)] for model in (stock, spyre)]
    assert ranks[0] == ranks[1]


def test_a_decoder_with_one_score_reranks() -> None:
    model = made("Qwen3ForSequenceClassification", QWEN3 | {"num_labels": 1})
    inputs = {"input_ids": torch.tensor([[5, 6, 7, 8], [9, 8, 0, 0]]), "attention_mask": torch.tensor([[1] * 4, [1, 1, 0, 0]])}
    with torch.no_grad():
        stock = model(**inputs, use_cache=False).logits
        found = loading.load(model)(**on_device(inputs), use_cache=False).logits.to("cpu", torch.float32)
    loading.unload(model)
    assert torch.allclose(found, stock, atol=HALF)


def test_sentence_transformers_encode_with_prompts_normalisation_and_any_batch_size(tokenizer: Any, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    import adapterc.st_backend  # noqa: F401 - teaches it the backend

    made("BertModel", BERT).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    parts = [Transformer(str(tmp_path / "bert")), Pooling(128), Normalize()]
    SentenceTransformer(modules=parts, device="cpu", prompts={"query": "where is "}).save(str(tmp_path / "st"))
    stock = SentenceTransformer(str(tmp_path / "st"), device="cpu")
    spyre = SentenceTransformer(str(tmp_path / "st"), device="cpu", backend="spyre")
    texts = ["the cat sat on a warm mat", "a dog", "the red house"]
    for options in ({"batch_size": 1}, {"batch_size": 3}, {"prompt_name": "query"}, {"normalize_embeddings": True}):
        expected, found = (model.encode(texts, convert_to_tensor=True, **options) for model in (stock, spyre))
        assert torch.allclose(found, expected, atol=HALF), options
        assert torch.allclose(found.norm(dim=-1), torch.ones(3), atol=1e-5)
        assert torch.allclose(spyre.similarity(found, found), stock.similarity(expected, expected), atol=2 * HALF)


class _Stop(transformers.StoppingCriteria):
    """Ends every sequence at a length."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return torch.full((input_ids.shape[0],), input_ids.shape[1] >= 7, device=input_ids.device)


PROMPT = {"input_ids": torch.tensor([[0, 0, 7, 9], [5, 6, 7, 8]]), "attention_mask": torch.tensor([[0, 0, 1, 1], [1] * 4])}
STATIC = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": "static"}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling with a seed": {"do_sample": True, "top_k": 5, "temperature": 0.8},
    "a stopping criterion": {"stopping_criteria": [_Stop()]},
    "a penalty for repetition": {"repetition_penalty": 1.5},
}


@pytest.mark.slow
def test_generate_is_stock_generate_on_batches_with_left_padding() -> None:
    """All ways that keep the batch share one prefill and one decode graph; beams make a batch of their own."""
    stock = made("Qwen3ForCausalLM", QWEN3)
    model = loading.load(copy.deepcopy(stock))
    assert type(model).generate is type(stock).generate
    for way, options in WAYS.items():
        both = []
        for one, prompt in ((stock, PROMPT), (model, on_device(PROMPT))):
            torch.manual_seed(0)
            both.append(one.generate(**prompt, **{**STATIC, **options}).to("cpu").tolist())
        assert both[0] == both[1], way
    assert len(compilations(model)) == 2
    beams = [one.generate(**p, **STATIC, num_beams=2).to("cpu").tolist() for one, p in ((stock, PROMPT), (model, on_device(PROMPT)))]
    assert beams[0] == beams[1]
    loading.unload(model)


@pytest.mark.slow
def test_a_streamer_gets_each_token_when_it_is_made(tokenizer: Any) -> None:
    class Kept(transformers.TextStreamer):
        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            texts.append(text)

    stock = made("GPT2LMHeadModel", {"vocab_size": len(WORDS), "n_embd": 128, "n_layer": 1, "n_head": 2, "n_positions": 32, "eos_token_id": 2, "bos_token_id": 1})  # fmt: skip
    prompt = {"input_ids": torch.tensor([[5, 6, 7, 8]])}
    streamed: list[list[str]] = []
    for one, given in ((stock, prompt), (loading.load(copy.deepcopy(stock)), on_device(prompt))):
        texts: list[str] = []
        one.generate(**given, **STATIC, pad_token_id=0, streamer=Kept(tokenizer))
        streamed.append(texts)
    assert streamed[0] == streamed[1]
    assert len(streamed[0]) > 2


def test_frequencies_of_positions_keep_the_precision_that_stock_gives_them() -> None:
    """A checkpoint in float16 leaves them in float32; rounded, a token at place 2000 is turned by a third of a radian too far."""
    stock = made("LlamaForCausalLM", QWEN3 | {"max_position_embeddings": 4096})
    model = loading.load(copy.deepcopy(stock))
    frequencies = model.model.rotary_emb.inv_freq
    assert frequencies.device.type == "spyre"
    assert frequencies.dtype == torch.float32
    assert torch.equal(frequencies.to("cpu"), stock.model.rotary_emb.inv_freq)
    inputs = {"input_ids": torch.tensor([[5, 6, 7, 8]]), "position_ids": torch.tensor([[0, 1000, 2000, 3000]])}
    with torch.no_grad():
        expected, found = (m(**i, use_cache=False).logits for m, i in ((stock, inputs), (model, on_device(inputs))))
    loading.unload(model)
    assert torch.allclose(found.to("cpu", torch.float32), expected, atol=HALF * expected.abs().max().item())


def test_a_tied_table_is_held_once() -> None:
    stock = made("LlamaForCausalLM", QWEN3 | {"tie_word_embeddings": True})
    count = sum(p.numel() for p in stock.parameters())
    model = loading.load(stock)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert sum(p.numel() for p in model.parameters()) == count
    assert loading.unload(model).lm_head.weight is model.model.embed_tokens.weight
