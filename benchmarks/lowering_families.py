"""The text families that `lowering.py` measures: a class, and the widths of a well-known model with as many layers as it has kinds of them.

Widths are those of the models' published configs; vocabularies are real, so that the LM head is. `reference`: device ops of one layer that the
public front-end reported for its best accepted composition of that family (prefill at whole sticks, prefill at 7 tokens, decode), where it was tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Ops = tuple[int | None, int | None, int | None]


@dataclass(frozen=True)
class Family:
    """One row of the table. `layers`: how many the model is built with."""

    name: str
    model_class: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    layers: int = 1
    reference: Ops = (None, None, None)
    peer: str = "no adapter"  # what the published hand-written adapters do with this family


def _encoder(hidden: int, heads: int, inner: int, vocab: int, **rest: Any) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": vocab,
        "num_hidden_layers": 1,
        **rest,
    }


def _decoder(hidden: int, heads: int, kv_heads: int, head_dim: int, inner: int, vocab: int, layers: int = 1, **rest: Any) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": inner,
        "vocab_size": vocab,
        "num_hidden_layers": layers,
        "max_position_embeddings": 4096,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **rest,
    }


_PADS_TO_128 = "heads to 128, table RoPE, scatter KV, a graph a layer"
_PADS_TO_64 = "heads to 64, head on the CPU, a graph a layer"
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_WINDOWED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 128}
_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
}

FAMILIES = (
    Family("BERT hd32 (MiniLM)", "BertForMaskedLM", _encoder(384, 12, 1536, 30522), reference=(33, 35, None), peer=_PADS_TO_64),
    Family("BERT hd64", "BertForMaskedLM", _encoder(768, 12, 3072, 30522), reference=(33, 35, None), peer=_PADS_TO_64),
    Family("RoBERTa", "RobertaForMaskedLM", _encoder(768, 12, 3072, 50265, max_position_embeddings=514, pad_token_id=1), peer=_PADS_TO_64),
    Family("MPNet", "MPNetForMaskedLM", _encoder(768, 12, 3072, 30527, max_position_embeddings=514), peer=_PADS_TO_64),
    Family(
        "DistilBERT",
        "DistilBertForMaskedLM",
        {"dim": 768, "n_heads": 12, "hidden_dim": 3072, "n_layers": 1, "vocab_size": 30522},
    ),
    Family("ELECTRA", "ElectraForMaskedLM", _encoder(256, 4, 1024, 30522, embedding_size=128)),
    Family("ALBERT", "AlbertForMaskedLM", _encoder(768, 12, 3072, 30000, embedding_size=128, pad_token_id=0)),
    Family(
        "ModernBERT",
        "ModernBertForMaskedLM",
        _encoder(768, 12, 1152, 50368, layer_types=["full_attention", "sliding_attention"]) | {"num_hidden_layers": 2},
        layers=2,
        reference=(36, 38, None),
        peer="three projections, heads to 128, a graph a layer",
    ),
    Family(
        "NomicBERT",
        "NomicBertForMaskedLM",
        _encoder(768, 12, 3072, 30528),
    ),
    Family(
        "XLM-R", "XLMRobertaForMaskedLM", _encoder(1024, 16, 4096, 250002, max_position_embeddings=514, pad_token_id=1), peer=_PADS_TO_64
    ),
    Family("EuroBERT", "EuroBertForMaskedLM", _decoder(768, 12, 12, 64, 3072, 128256)),
    Family(
        "T5",
        "T5ForConditionalGeneration",
        {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_heads": 8, "num_layers": 1, "num_decoder_layers": 1, "vocab_size": 32128},
        layers=3,  # an encoder layer, and self and cross attention of a decoder layer
        reference=(33, 35, None),
    ),
    Family(
        "BART",
        "BartForConditionalGeneration",
        {
            "d_model": 768,
            "encoder_attention_heads": 12,
            "decoder_attention_heads": 12,
            "encoder_ffn_dim": 3072,
            "decoder_ffn_dim": 3072,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "vocab_size": 50265,
        },
        layers=3,
    ),
    Family("Llama hd64", "LlamaForCausalLM", _decoder(2048, 32, 8, 64, 8192, 128256), reference=(45, 47, 47), peer=_PADS_TO_128),
    Family("Llama hd128", "LlamaForCausalLM", _decoder(4096, 32, 8, 128, 14336, 128256), reference=(45, 47, 47), peer=_PADS_TO_128),
    Family("Qwen2", "Qwen2ForCausalLM", _decoder(896, 14, 2, 64, 4864, 151936), reference=(48, 50, 50), peer=_PADS_TO_128),
    Family("Qwen3", "Qwen3ForCausalLM", _decoder(4096, 32, 8, 128, 12288, 151936), reference=(57, 59, 59), peer="table RoPE, scatter KV"),
    Family("Mistral", "MistralForCausalLM", _decoder(4096, 32, 8, 128, 14336, 32000, sliding_window=4096), peer="the window is ignored"),
    Family(
        "Ministral",
        "MinistralForCausalLM",
        _decoder(4096, 32, 8, 128, 12288, 131072, layers=2, **_WINDOWED),
        layers=2,
        peer="the window is ignored",
    ),
    Family("Phi", "PhiForCausalLM", _decoder(2560, 32, 32, 80, 10240, 51200, partial_rotary_factor=0.4)),
    Family(
        "Phi3",
        "Phi3ForCausalLM",
        _decoder(3072, 32, 32, 96, 8192, 32064),
        reference=(43, 45, 45),
        peer="five projections, heads permuted and to 128",
    ),
    Family("Gemma", "GemmaForCausalLM", _decoder(2048, 8, 1, 256, 16384, 256000)),
    Family(
        "Gemma2",
        "Gemma2ForCausalLM",
        _decoder(2304, 8, 4, 256, 9216, 256000, layers=2, **_WINDOWED),
        layers=2,
        reference=(64, 66, 65),
    ),
    Family(
        "Gemma3",
        "Gemma3ForCausalLM",
        _decoder(1152, 4, 1, 256, 6912, 262144, layers=2, rope_parameters=_ROPES, **_WINDOWED),
        layers=2,
        reference=(73, 75, 75),
        peer="four norms, two tables, a graph a layer",
    ),
    Family("Granite", "GraniteForCausalLM", _decoder(2048, 32, 8, 64, 8192, 49155), peer=_PADS_TO_128),
    Family(
        "SmolLM3",
        "SmolLM3ForCausalLM",
        _decoder(2048, 16, 4, 128, 11008, 128256, layers=2, no_rope_layers=[1, 0]),
        layers=2,
        peer="the window is ignored",
    ),
    Family("OLMo", "OlmoForCausalLM", _decoder(2048, 16, 16, 128, 8192, 50304), peer="clip_qkv is ignored"),
    Family("OLMo2", "Olmo2ForCausalLM", _decoder(4096, 32, 32, 128, 11008, 100352), reference=(43, 45, 45), peer="crashes at heads of 64"),
    Family("OLMo3", "Olmo3ForCausalLM", _decoder(4096, 32, 32, 128, 11008, 100278, layers=2, **_WINDOWED), layers=2),
    Family(
        "GPT-2",
        "GPT2LMHeadModel",
        {"n_embd": 768, "n_head": 12, "n_layer": 1, "vocab_size": 50257},
        reference=(33, 35, 35),
        peer="three projections, a graph a layer",
    ),
    Family(
        "GPT-NeoX hd80",
        "GPTNeoXForCausalLM",
        {
            "hidden_size": 2560,
            "num_attention_heads": 32,
            "intermediate_size": 10240,
            "num_hidden_layers": 1,
            "vocab_size": 50304,
            "rotary_pct": 0.25,
            **_TOKENS,
        },
        reference=(41, 43, 43),
        peer="three projections, heads permuted and to 128",
    ),
    Family(
        "GPT-NeoX hd64",
        "GPTNeoXForCausalLM",
        {
            "hidden_size": 768,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "num_hidden_layers": 1,
            "vocab_size": 50304,
            "rotary_pct": 0.25,
            **_TOKENS,
        },
        reference=(41, 43, 43),
        peer="three projections, heads permuted and to 128",
    ),
    Family("GPT-J", "GPTJForCausalLM", {"n_embd": 4096, "n_head": 16, "n_layer": 1, "vocab_size": 50400, "rotary_dim": 64, **_TOKENS}),
    Family(
        "GPT-Neo",
        "GPTNeoForCausalLM",
        {"hidden_size": 768, "num_heads": 12, "num_layers": 2, "attention_types": [[["global", "local"], 1]], "vocab_size": 50257},
        layers=2,
        peer="the local window is ignored",
    ),
    Family(
        "GPTBigCode",
        "GPTBigCodeForCausalLM",
        {"n_embd": 2048, "n_head": 16, "n_layer": 1, "vocab_size": 49280, "n_inner": 8192, **_TOKENS},
    ),
    Family("CodeGen", "CodeGenForCausalLM", {"n_embd": 1024, "n_head": 16, "n_layer": 1, "vocab_size": 51200, "rotary_dim": 32, **_TOKENS}),
    Family(
        "OPT",
        "OPTForCausalLM",
        {
            "hidden_size": 768,
            "word_embed_proj_dim": 768,
            "num_attention_heads": 12,
            "ffn_dim": 3072,
            "num_hidden_layers": 1,
            "vocab_size": 50272,
        },
        reference=(33, 35, 35),
    ),
    Family(
        "BLOOM",
        "BloomForCausalLM",
        {"hidden_size": 1024, "n_head": 16, "n_layer": 1, "vocab_size": 250880, **_TOKENS},
    ),
    Family(
        "Falcon",
        "FalconForCausalLM",
        {"hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 1, "vocab_size": 65024, **_TOKENS},
    ),
    Family("StableLM", "StableLmForCausalLM", _decoder(2560, 32, 32, 80, 6912, 50304, partial_rotary_factor=0.25)),
    Family("Cohere", "CohereForCausalLM", _decoder(4096, 32, 8, 128, 14336, 256000)),
    Family("Cohere2", "Cohere2ForCausalLM", _decoder(4096, 32, 8, 128, 14336, 256000, layers=2, **_WINDOWED), layers=2),
    Family("GLM", "GlmForCausalLM", _decoder(4096, 32, 2, 128, 13696, 151552)),
    Family("GLM4", "Glm4ForCausalLM", _decoder(4096, 32, 2, 128, 13696, 151552)),
    Family("Exaone4", "Exaone4ForCausalLM", _decoder(2048, 32, 8, 64, 4096, 102400, layers=2, **_WINDOWED), layers=2),
    Family(
        "GraniteMoeHybrid",
        "GraniteMoeHybridForCausalLM",
        _decoder(2048, 32, 8, 64, 8192, 100352, layer_types=["attention"], num_local_experts=0, shared_intermediate_size=8192),
        peer="two projections of the MLP, experts are dropped",
    ),
)
