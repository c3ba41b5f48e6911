"""Transformers built from their configurations, small and with random weights. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Named(nn.Module):
    """A transformers model that takes tensors by position and returns some of its results, by name."""

    def __init__(self, model: nn.Module, takes: tuple[str, ...], gives: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.takes, self.gives = model, takes, gives

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(**dict(zip(self.takes, given, strict=True)), return_dict=True)
        return tuple(found[name] for name in self.gives)


def tokens(*shape: int, below: int = 99) -> torch.Tensor:
    return torch.randint(1, below, shape, generator=torch.Generator().manual_seed(3))


def bert() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=99,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=70,
        max_position_embeddings=40,
    )
    mask = torch.ones(2, 11, dtype=torch.int64)
    mask[1, 7:] = 0
    model = Named(BertModel(config), ("input_ids", "attention_mask"), ("last_hidden_state", "pooler_output"))
    return model, (tokens(2, 11), mask)


def gpt2() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=99, n_positions=40, n_embd=48, n_layer=2, n_head=4, use_cache=False)
    return Named(GPT2LMHeadModel(config), ("input_ids",), ("logits",)), (tokens(2, 13),)


def vit() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=28, patch_size=7, hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=70
    )
    return Named(ViTForImageClassification(config), ("pixel_values",), ("logits",)), (torch.randn(1, 3, 28, 28),)


def whisper() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        vocab_size=99,
        num_mel_bins=16,
        d_model=48,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=30,
        max_target_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
    )
    takes = ("input_features", "decoder_input_ids")
    return Named(WhisperModel(config), takes, ("last_hidden_state",)), (torch.randn(1, 16, 60), tokens(1, 7))


def mixtral() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=99,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=40,
        use_cache=False,
    )
    config._experts_implementation = "batched_mm"  # the others loop over the selected experts, or have no operators
    return Named(MixtralForCausalLM(config), ("input_ids",), ("logits",)), (tokens(1, 9),)


Make = Callable[[], tuple[Any, tuple[torch.Tensor, ...]]]
MODELS: dict[str, Make] = {"bert": bert, "gpt2": gpt2, "vit": vit, "whisper": whisper, "mixtral": mixtral}
