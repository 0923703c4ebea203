"""What the tests share: sizes, tensors and masks.

Every axis has a prime length of its own, so that no two of them can be mixed up without an error or a wrong number.
Everything is float64 unless a test asks for something else, and made from fixed seeds.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from hypothesis import settings
from torch import Tensor, nn

from annotated_transformer.config import TransformerConfig
from annotated_transformer.masks import causal_mask, padding_mask
from annotated_transformer.model import Transformer

BATCH, H, N_Q, N_K, D_K, D_V = 2, 3, 5, 7, 11, 13
D_Q, D_HIDDEN = 17, 19  # additive attention, where queries have a width of their own
TOLERANCE = 1e-10

M, N, D_MODEL, D_FF, VOCABULARY, PAD = 5, 7, 31, 23, 29, 1  # m target and n source tokens; PAD is not the default, 0
MODEL = TransformerConfig(
    d_model=D_MODEL, d_ff=D_FF, h=H, N=2, d_k=D_K, d_v=D_V, vocab_size=VOCABULARY, pad_id=PAD, max_length=37
)
"""A model whose every width is another prime; only the layers are as many as the sentences."""

Module = TypeVar("Module", bound=nn.Module)

quick = settings(max_examples=30, deadline=None, derandomize=True, database=None)
"""For property tests: the same few examples in every run, and no files left behind."""


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, requires_grad: bool = False) -> Tensor:
    """Draw a standard normal tensor; the same seed gives the same numbers in every dtype, rounded."""
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn.to(dtype).requires_grad_(requires_grad)


def query_key_value(
    *leading: int, n_q: int = N_Q, n_k: int = N_K, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw query ``(*leading, n_q, D_K)``, key ``(*leading, n_k, D_K)`` and value ``(*leading, n_k, D_V)``."""
    shapes = (n_q, D_K), (n_k, D_K), (n_k, D_V)
    query, key, value = (
        normal(*leading, *shape, seed=3 * seed + i, dtype=dtype, requires_grad=True) for i, shape in enumerate(shapes)
    )
    return query, key, value


def settled(module: Module, seed: int = 0) -> Module:
    """Give a module float64 parameters that are all random: no bias is 0, no scale is 1."""
    module = module.double()
    for place, parameter in enumerate(module.parameters()):
        drawn = normal(*parameter.shape, seed=1000 * seed + place)
        parameter.data = drawn / parameter.shape[-1] ** 0.5 if parameter.ndim > 1 else 1 + drawn / 2
    return module


def transformer(seed: int = 0, **changes: object) -> Transformer:
    """Make a model of MODEL's sizes, with some fields changed, ready to be evaluated."""
    return settled(Transformer(MODEL.replace(**changes)), seed).eval()


def tokens(*shape: int, seed: int = 0) -> Tensor:
    """Draw token ids, no padding among them."""
    return torch.randint(PAD + 1, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def padded(ids: Tensor, *lengths: int) -> Tensor:
    """Overwrite each sentence from its length on with padding."""
    ids = ids.clone()
    for sentence, length in zip(ids, lengths, strict=True):
        sentence[length:] = PAD
    return ids


def random_mask(*shape: int, seed: int = 0) -> Tensor:
    """Draw a mask whose every row allows some keys and forbids some."""
    order = torch.rand(shape, generator=torch.Generator().manual_seed(seed)).argsort(-1)
    allowed = torch.randint(1, shape[-1], (*shape[:-1], 1), generator=torch.Generator().manual_seed(seed + 1))
    return order < allowed


def with_empty_rows(mask: Tensor) -> Tensor:
    """Forbid every key to the first and the last query."""
    mask = mask.clone()
    mask[..., [0, -1], :] = False
    return mask


PADDING = padding_mask(torch.tensor([[5, 3, 8, 2, 4, 0, 0], [7, 6, 1, 0, 0, 0, 0]]), pad_id=0)  # (BATCH, 1, 1, N_K)

MASKS: dict[str, Tensor | None] = {  # every form that broadcasts to (BATCH, H, N_Q, N_K)
    "none": None,
    "one for all": torch.tensor(True),
    "keys": random_mask(N_K),
    "queries": torch.tensor([True, False, True, True, False])[:, None],
    "2-D": random_mask(N_Q, N_K),
    "3-D, each head": random_mask(H, N_Q, N_K),
    "each head": random_mask(1, H, N_Q, N_K),
    "each sequence": random_mask(BATCH, 1, N_Q, N_K),
    "each sequence and head": random_mask(BATCH, H, N_Q, N_K),
    "padding": PADDING,
    "causal, with a past": causal_mask(N_Q, past=N_K - N_Q),
    "causal and padding": causal_mask(N_Q, past=N_K - N_Q) & PADDING,
    "rows without a key": with_empty_rows(random_mask(BATCH, H, N_Q, N_K)),
}


def gradients(output: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Pull one fixed random direction back to the inputs."""
    return torch.autograd.grad(output, inputs, normal(*output.shape, seed=99, dtype=output.dtype), retain_graph=True)


def largest_difference(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest absolute difference; NaN on one side alone, or on both, is NaN and passes no comparison."""
    assert ours.shape == theirs.shape, f"{tuple(ours.shape)} beside {tuple(theirs.shape)}"
    return (ours - theirs).abs().max().item()
