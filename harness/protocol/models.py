"""Shapes of the dense models that can be made locally with random weights, and the sums that follow from a shape.

The `qwen3-*` shapes are those of the published Qwen3 dense configurations (config.json of each model).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A dense decoder-only transformer with grouped-query attention and a gated MLP."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied_embeddings: bool
    max_positions: int

    @property
    def parameters(self) -> int:
        """Weights of all matrices and norms."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads) + 2 * self.head_dim
        mlp = 3 * self.hidden * self.intermediate
        embeddings = self.vocabulary * self.hidden * (1 if self.tied_embeddings else 2)
        return self.layers * (attention + mlp + 2 * self.hidden) + self.hidden + embeddings

    def forward_flops(self, tokens: int, mean_context: float) -> float:
        """FLOPs of one forward pass over `tokens` tokens, each attending to `mean_context` tokens on average.

        Two FLOPs per multiply-add of every weight but the input embedding's look-up, plus attention scores and
        their weighted sum: 4 x layers x heads x head_dim x context per token (Kaplan et al. 2020, section 2.1).
        """
        lookup = 0 if self.tied_embeddings else self.vocabulary * self.hidden
        weights = self.parameters - lookup
        attention = 4 * self.layers * self.heads * self.head_dim * mean_context
        return tokens * (2 * weights + attention)


def _qwen3(hidden: int, layers: int, heads: int, intermediate: int, *, tied: bool, kv_heads: int = 8) -> ModelShape:
    return ModelShape(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=128,
        intermediate=intermediate,
        vocabulary=151_936,
        tied_embeddings=tied,
        max_positions=40_960,
    )


SHAPES: Mapping[str, ModelShape] = {
    "tiny": ModelShape(
        hidden=64,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=32,
        intermediate=128,
        vocabulary=2_048,
        tied_embeddings=False,
        max_positions=4_096,
    ),
    "random:qwen3-0.6b": _qwen3(1024, 28, 16, 3072, tied=True),
    "random:qwen3-1.7b": _qwen3(2048, 28, 16, 6144, tied=True),
    "random:qwen3-4b": _qwen3(2560, 36, 32, 9728, tied=True),
    "random:qwen3-8b": _qwen3(4096, 36, 32, 12_288, tied=False),
    "random:qwen3-14b": _qwen3(5120, 40, 40, 17_408, tied=False),
    "random:qwen3-32b": _qwen3(5120, 64, 64, 25_600, tied=False),
}
