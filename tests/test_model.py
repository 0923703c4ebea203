"""The whole model: Figure 1 written out once more, every switch, dropout, properties, and what is refused."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from shapes import (
    BATCH,
    D_FF,
    D_K,
    D_MODEL,
    D_V,
    MODEL,
    PAD,
    TOLERANCE,
    VOCABULARY,
    H,
    M,
    N,
    gradients,
    largest_difference,
    normal,
    padded,
    quick,
    settled,
    tokens,
    transformer,
)
from torch import Tensor, nn

from annotated_transformer.attention import MultiHeadAttention, record_attention
from annotated_transformer.config import BASE, BIG, SMALL, TINY
from annotated_transformer.embeddings import Embedding, Generator
from annotated_transformer.layers import AddNorm, DecoderLayer, EncoderLayer
from annotated_transformer.model import Memory, Transformer
from annotated_transformer.norms import LayerNorm
from annotated_transformer.positions import SinusoidalPositions

SOURCE = padded(tokens(BATCH, N, seed=1), N, 4)
TARGET = padded(tokens(BATCH, M, seed=2), M, 3)


class ByHand:
    """The model of section 3 on plain numbers: loops over heads, masks of minus infinity, one-hot vectors.

    It reads a model's parameters and nothing else of it. In training it drops what the model drops, in the same order,
    so that from one seed both drop the same units, if and only if dropout stands at the same places.
    """

    def __init__(self, model: Transformer) -> None:
        self.config, self.training = model.config, model.training
        self.parameters = dict(model.named_parameters(remove_duplicate=False))

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        pre, real = self.config.norm_order == "pre", source != PAD
        x = self.embed("source_embedding", source)
        for i in range(self.config.N):
            x = self.encoder_layer(f"encoder.{i}", x, real)
        memory = self.norm("encoder_norm", x) if pre else x
        x = self.embed("target_embedding", target)
        for i in range(self.config.N):
            x = self.decoder_layer(f"decoder.{i}", x, memory, real)
        x = self.norm("decoder_norm", x) if pre else x
        return x @ self.parameters["generator.weight"].T

    def encoder_layer(self, name: str, x: Tensor, real: Tensor) -> Tensor:
        x = self.add_norm(f"{name}.add_norm_1", x, lambda x: self.attend(f"{name}.self_attention", x, x, real))
        return self.add_norm(f"{name}.add_norm_2", x, lambda x: self.feed_forward(f"{name}.feed_forward", x))

    def decoder_layer(self, name: str, x: Tensor, y: Tensor, real: Tensor) -> Tensor:
        m = x.shape[1]
        past = torch.tensor([[key <= query for key in range(m)] for query in range(m)])
        x = self.add_norm(f"{name}.add_norm_1", x, lambda x: self.attend(f"{name}.self_attention", x, x, past))
        x = self.add_norm(f"{name}.add_norm_2", x, lambda x: self.attend(f"{name}.cross_attention", x, y, real))
        return self.add_norm(f"{name}.add_norm_3", x, lambda x: self.feed_forward(f"{name}.feed_forward", x))

    def embed(self, name: str, ids: Tensor) -> Tensor:
        d_model = self.config.d_model
        x = (ids[..., None] == torch.arange(self.config.vocab_size)).double() @ self.parameters[f"{name}.weight"]
        if self.config.scale_embeddings:
            x = x * math.sqrt(d_model)
        if self.config.positions == "learned":
            x = x + self.parameters["positions.weight"][: ids.shape[1]]
        else:
            wave = [math.cos if c % 2 else math.sin for c in range(d_model)]
            angle = [[pos / 10_000 ** ((c - c % 2) / d_model) for c in range(d_model)] for pos in range(ids.shape[1])]
            x = x + torch.tensor([[f(a) for f, a in zip(wave, row, strict=True)] for row in angle], dtype=x.dtype)
        return self.drop(x, self.config.p_drop)

    def attend(self, name: str, x: Tensor, y: Tensor, allowed: Tensor) -> Tensor:
        """``allowed`` is (batch, n_k), the real tokens of y, or (m, m), the past of each query."""
        config = self.config
        query, key, value = (self.linear(f"{name}.{w}", z) for w, z in (("w_q", x), ("w_k", y), ("w_v", y)))
        allowed = allowed[:, None, :].expand(-1, x.shape[1], -1) if len(allowed) == len(x) else allowed
        weights = []
        for i in range(config.h):
            q, k = (z[..., i * config.d_k : (i + 1) * config.d_k] for z in (query, key))
            scores = torch.einsum("bqc,bkc->bqk", q, k) / math.sqrt(config.d_k)
            scores = torch.where(allowed, scores, torch.tensor(-torch.inf, dtype=scores.dtype))
            weights.append(scores.exp() / scores.exp().sum(-1, keepdim=True))
        weights = self.drop(torch.stack(weights, 1), config.p_drop_attention)
        heads = [weights[:, i] @ value[..., i * config.d_v : (i + 1) * config.d_v] for i in range(config.h)]
        return self.linear(f"{name}.w_o", torch.cat(heads, -1))

    def feed_forward(self, name: str, x: Tensor) -> Tensor:
        hidden = self.linear(f"{name}.w_1", x)
        if self.config.activation == "relu":
            hidden = torch.maximum(hidden, torch.zeros_like(hidden))
        else:
            hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
        return self.linear(f"{name}.w_2", self.drop(hidden, self.config.p_drop_ff))

    def add_norm(self, name: str, x: Tensor, sublayer) -> Tensor:
        if self.config.norm_order == "post":
            return self.norm(f"{name}.norm", x + self.drop(sublayer(x), self.config.p_drop))
        return x + self.drop(sublayer(self.norm(f"{name}.norm", x)), self.config.p_drop)

    def norm(self, name: str, x: Tensor) -> Tensor:
        gamma, beta = self.parameters[f"{name}.gamma"], self.parameters[f"{name}.beta"]
        centred = x - x.sum(-1, keepdim=True) / x.shape[-1]
        variance = (centred * centred).sum(-1, keepdim=True) / x.shape[-1]
        return centred / torch.sqrt(variance + self.config.norm_eps) * gamma + beta

    def linear(self, name: str, x: Tensor) -> Tensor:
        y = x @ self.parameters[f"{name}.weight"].T
        return y + self.parameters[f"{name}.bias"] if f"{name}.bias" in self.parameters else y

    def drop(self, x: Tensor, p: float) -> Tensor:
        return F.dropout(x, p, self.training)


# Every field of the config that changes what a model of given parameters computes.
SWITCHES: dict[str, dict[str, object]] = {
    "the paper's": {},
    "pre-norm": {"norm_order": "pre"},
    "norm_eps": {"norm_eps": 0.5},
    "gelu": {"activation": "gelu"},
    "biases": {"attention_bias": True},
    "learned positions": {"positions": "learned"},
    "the target tied": {"tied": "target"},
    "nothing tied": {"tied": "none"},
    "unscaled embeddings": {"scale_embeddings": False},
    "one layer": {"N": 1},
    "all at once": {
        "norm_order": "pre",
        "norm_eps": 0.1,
        "activation": "gelu",
        "attention_bias": True,
        "positions": "learned",
        "tied": "none",
        "scale_embeddings": False,
    },
}
every_switch = pytest.mark.parametrize("changes", SWITCHES.values(), ids=SWITCHES)
both_orders = pytest.mark.parametrize("norm_order", ["post", "pre"])


@every_switch
def test_the_model_written_out(changes):
    model = transformer(**changes)
    ours, expected = model(SOURCE, TARGET), ByHand(model)(SOURCE, TARGET)
    assert ours.shape == (BATCH, M, VOCABULARY)
    assert largest_difference(ours, expected) < TOLERANCE
    parameters = tuple(model.parameters())
    for mine, other in zip(gradients(ours, parameters), gradients(expected, parameters), strict=True):
        assert mine.abs().max() > 0, "every parameter has a say"
        assert largest_difference(mine, other) < TOLERANCE


@pytest.mark.parametrize("name", [name for name in SWITCHES if name not in ("the paper's", "all at once")])
def test_every_switch_has_an_effect(name):
    """With the parameters that both models have set alike, what comes out differs."""
    paper, changed = transformer(), transformer(**SWITCHES[name])
    shared = dict(paper.named_parameters(remove_duplicate=False))
    if name in ("the target tied", "nothing tied"):  # what was one matrix is two or three
        shared = {key: value for key, value in shared.items() if "embedding" not in key and "generator" not in key}
    for key, parameter in changed.named_parameters(remove_duplicate=False):
        if key in shared:
            parameter.data = shared[key].data
    assert largest_difference(changed(SOURCE, TARGET), paper(SOURCE, TARGET)) > 1e-3


# Dropout


@pytest.mark.parametrize(
    "changes",
    [
        {"p_drop": 0.5},
        {"p_drop": 0.5, "norm_order": "pre"},
        {"p_drop": 0.0, "p_drop_attention": 0.5},
        {"p_drop": 0.0, "p_drop_ff": 0.5},
        {"p_drop": 0.3, "p_drop_attention": 0.2, "p_drop_ff": 0.4},
    ],
    ids=["5.4", "pre-norm", "attention", "feed-forward", "all"],
)
def test_dropout_stands_where_it_should_and_nowhere_else(changes):
    """From one seed the model and the model written out draw the same units, place by place."""
    model = transformer(**changes).train()
    torch.manual_seed(1)
    ours = model(SOURCE, TARGET)
    torch.manual_seed(1)
    expected = ByHand(model)(SOURCE, TARGET)
    assert largest_difference(ours, expected) < TOLERANCE
    assert largest_difference(ours, model.eval()(SOURCE, TARGET)) > 1e-2


def test_dropout_is_counted():
    """Section 5.4: the output of each sub-layer, and the sums of embeddings and positions in both stacks."""
    model = Transformer(MODEL.replace(p_drop=0.1)).train()
    calls: Counter[str] = Counter()
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda module, *_, name=name: calls.update([name] if module.p > 0 else []))
    model(SOURCE, TARGET)
    sublayers = [f"encoder.{i}.add_norm_{s}.dropout" for i in range(MODEL.N) for s in (1, 2)]
    sublayers += [f"decoder.{i}.add_norm_{s}.dropout" for i in range(MODEL.N) for s in (1, 2, 3)]
    assert calls == {"dropout": 2, **dict.fromkeys(sublayers, 1)}
    assert all(module.p_drop == 0 for module in model.modules() if isinstance(module, MultiHeadAttention))


def test_without_dropout_training_is_evaluation():
    model = transformer(p_drop=0.0)
    state = torch.get_rng_state()
    assert torch.equal(model.train()(SOURCE, TARGET), model.eval()(SOURCE, TARGET))
    assert torch.equal(torch.get_rng_state(), state), "a random number was drawn"


def test_evaluation_is_deterministic_and_training_is_not():
    model = transformer(p_drop=0.1, p_drop_attention=0.1, p_drop_ff=0.1)
    assert torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))
    model.train()
    assert not torch.equal(model(SOURCE, TARGET), model(SOURCE, TARGET))


# Who sees whom


@quick
@given(more=st.integers(1, 9), seed=st.integers(0, 99))
@both_orders
def test_more_padding_in_the_source_changes_nothing(norm_order, more, seed):
    model, target = transformer(norm_order=norm_order), tokens(BATCH, M, seed=seed)
    source = padded(tokens(BATCH, N, seed=seed), N, 1 + seed % N)
    longer = F.pad(source, (0, more), value=PAD)
    assert largest_difference(model(longer, target), model(source, target)) < TOLERANCE
    short, long = model.encode(source), model.encode(longer)
    real = source != PAD
    assert largest_difference(long.states[:, :N][real], short.states[real]) < TOLERANCE


@quick
@given(more=st.integers(1, 9), seed=st.integers(0, 99))
@both_orders
def test_more_padding_in_the_target_changes_nothing(norm_order, more, seed):
    model = transformer(norm_order=norm_order)
    target = padded(tokens(BATCH, M, seed=seed), M, 1 + seed % M)
    longer = F.pad(target, (0, more), value=PAD)
    real = target != PAD
    ours, expected = model(SOURCE, longer)[:, :M][real], model(SOURCE, target)[real]
    assert largest_difference(ours, expected) < TOLERANCE
    parameters = tuple(model.parameters())
    for mine, other in zip(gradients(ours, parameters), gradients(expected, parameters), strict=True):
        assert largest_difference(mine, other) < TOLERANCE


@quick
@given(seed=st.integers(0, 99))
def test_a_sentence_does_not_see_the_others_of_its_batch(seed):
    model = transformer()
    source, target = padded(tokens(BATCH, N, seed=seed), N, 1 + seed % N), tokens(BATCH, M, seed=seed)
    together = model(source, target)
    for b in range(BATCH):
        length = int((source[b] != PAD).sum())
        alone = model(source[b : b + 1, :length], target[b : b + 1])
        assert largest_difference(together[b : b + 1], alone) < TOLERANCE


@both_orders
def test_no_position_depends_on_a_later_one(norm_order):
    """The Jacobian of the decoder by its embedded target, through all layers: exactly zero above the diagonal."""
    model = transformer(norm_order=norm_order, tied="none")
    memory, target = model.encode(SOURCE[:1]), tokens(1, M)

    def decode(shift: Tensor) -> Tensor:
        handle = model.target_embedding.register_forward_hook(lambda module, inputs, output: output + shift)
        try:
            return model.decode(target, memory)[0]
        finally:
            handle.remove()

    jacobian = torch.autograd.functional.jacobian(decode, torch.zeros(M, D_MODEL, dtype=torch.float64))
    depends = (jacobian != 0).any(3).any(1)  # (m, m): output by input
    assert depends.tolist() == [[j <= i for j in range(M)] for i in range(M)]


@both_orders
def test_padding_in_the_source_has_no_say(norm_order):
    """And every real token has one, for every position of the target."""
    model = transformer(norm_order=norm_order)
    memory = model.encode(SOURCE)
    states = memory.states.detach().requires_grad_()
    [gradient] = gradients(model.decode(TARGET, Memory(states, memory.mask)), (states,))
    assert ((gradient != 0).any(-1) == (SOURCE != PAD)).all()


class NoPositions(nn.Module):
    def forward(self, n: int, start: int, like: Tensor) -> Tensor:
        return like.new_zeros(n, like.shape[-1])


@quick
@given(order=st.permutations(range(N)), seed=st.integers(0, 99))
@both_orders
def test_without_positions_the_encoder_takes_a_sentence_for_a_bag_of_words(norm_order, order, seed):
    model, source = transformer(norm_order=norm_order), padded(tokens(BATCH, N, seed=seed), N, 1 + seed % N)
    model.positions = NoPositions()
    assert largest_difference(model.encode(source[:, order]).states, model.encode(source).states[:, order]) < TOLERANCE


def test_with_positions_the_order_matters():
    for positions in ("sinusoidal", "learned"):
        model, source = transformer(positions=positions), tokens(BATCH, N)
        assert largest_difference(model.encode(source.flip(1)).states, model.encode(source).states.flip(1)) > 0.1


@both_orders
@pytest.mark.parametrize("changes", [{}, {"attention_bias": True}], ids=["no biases", "biases"])
def test_a_source_of_padding_alone_stays_finite(norm_order, changes):
    """Its every query has no key, in the encoder and from the decoder; the other sentences do not notice."""
    model = transformer(norm_order=norm_order, **changes)
    source = padded(tokens(BATCH, N), N, 0)
    logits = model(source, TARGET)
    assert logits.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(logits, tuple(model.parameters())))
    assert largest_difference(logits[:1], model(source[:1], TARGET[:1])) < TOLERANCE


def test_padding_may_stand_anywhere_in_the_source():
    model, source = transformer(), tokens(1, N)
    source[0, 2] = PAD
    expected = ByHand(model)(source, TARGET[:1])
    assert largest_difference(model(source, TARGET[:1]), expected) < TOLERANCE


@pytest.mark.parametrize("pad_id", [0, 3, VOCABULARY - 1])
def test_the_pad_id_of_the_config_is_padding(pad_id):
    model = transformer(pad_id=pad_id)
    source = torch.tensor([[5, 6, pad_id, pad_id], [7, 8, 9, 10]])
    assert model.encode(source).mask.tolist() == [[[[True, True, False, False]]], [[[True] * 4]]]
    target = tokens(2, M).where(tokens(2, M) != pad_id, 4)
    assert largest_difference(model(source, target)[:1], model(source[:1, :2], target[:1])) < TOLERANCE


def test_a_source_without_padding_needs_no_mask():
    model = transformer()
    assert model.encode(tokens(BATCH, N)).mask is None
    assert model.encode(SOURCE).mask.shape == (BATCH, 1, 1, N)


def test_the_stages_make_the_whole():
    model = transformer()
    memory = model.encode(SOURCE)
    assert memory.states.shape == (BATCH, N, D_MODEL)
    hidden = model.decode(TARGET, memory)
    assert hidden.shape == (BATCH, M, D_MODEL)
    assert torch.equal(model.generator(hidden), model(SOURCE, TARGET))


def test_a_batch_may_be_empty():
    assert transformer()(tokens(0, N), tokens(0, M)).shape == (0, M, VOCABULARY)


def test_one_token_is_a_sentence():
    model = transformer()
    source, target = tokens(1, 1), tokens(1, 1, seed=1)
    assert largest_difference(model(source, target), ByHand(model)(source, target)) < TOLERANCE


# Figure 1 as a tree of modules


def test_the_blocks_of_figure_1():
    model = Transformer(MODEL)
    assert [(name, type(child)) for name, child in model.named_children()] == [
        ("source_embedding", Embedding),  # and target_embedding, the same
        ("positions", SinusoidalPositions),
        ("dropout", nn.Dropout),
        ("encoder", nn.ModuleList),
        ("decoder", nn.ModuleList),
        ("encoder_norm", nn.Identity),
        ("decoder_norm", nn.Identity),
        ("generator", Generator),
    ]
    assert [type(layer) for layer in model.encoder] == [EncoderLayer] * MODEL.N
    assert [type(layer) for layer in model.decoder] == [DecoderLayer] * MODEL.N
    assert [layer.index for layer in model.decoder] == list(range(MODEL.N))


@pytest.mark.parametrize(("norm_order", "more"), [("post", 0), ("pre", 2)])
def test_no_norm_that_the_paper_has_not_got(norm_order, more):
    """One for each sub-layer, 2 N + 3 N; pre-norm ends each stack with one more."""
    counts = Counter(type(module) for module in Transformer(MODEL.replace(norm_order=norm_order)).modules())
    assert counts[LayerNorm] == 5 * MODEL.N + more
    assert counts[AddNorm] == 5 * MODEL.N
    assert counts[MultiHeadAttention] == 3 * MODEL.N


def test_layers_share_nothing():
    model = Transformer(MODEL)
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    assert len(names) - len(list(model.parameters())) == 2, "the one matrix has three names, everything else one"


@pytest.mark.parametrize(("tied", "matrices"), [("all", 1), ("target", 2), ("none", 3)])
def test_how_many_matrices_of_the_vocabulary_there_are(tied, matrices):
    model = Transformer(MODEL.replace(tied=tied))
    weights = [model.source_embedding.weight, model.target_embedding.weight, model.generator.weight]
    assert len({id(weight) for weight in weights}) == matrices
    assert (weights[1] is weights[2]) == (tied != "none")
    assert (weights[0] is weights[1]) == (tied == "all")
    assert sum(parameter.shape == (VOCABULARY, D_MODEL) for parameter in model.parameters()) == matrices


def test_gradients_through_the_tied_matrix_add_up():
    tied, apart = transformer(), transformer(tied="none")
    shared = dict(tied.named_parameters(remove_duplicate=False))
    for name, parameter in apart.named_parameters():
        parameter.data = shared[name].data.clone()
    [together] = gradients(tied(SOURCE, TARGET), (tied.generator.weight,))
    separate = gradients(
        apart(SOURCE, TARGET), (apart.source_embedding.weight, apart.target_embedding.weight, apart.generator.weight)
    )
    assert largest_difference(together, sum(separate)) < TOLERANCE
    assert all(gradient.abs().max() > 1e-3 for gradient in separate)


# Parameters


def count(config, **changes) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config.replace(**changes)).parameters())


def formula(V: int, d_model: int, d_ff: int, h: int, N: int, d_k: int, d_v: int) -> int:
    attention = 2 * d_model * h * d_k + 2 * d_model * h * d_v
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    return V * d_model + N * (3 * attention + 2 * feed_forward + 5 * 2 * d_model)


@pytest.mark.parametrize(
    ("config", "expected"),
    [(BASE, 63_045_632), (BIG, 214_171_648), (SMALL, 14_992_384), (TINY, 5_658_624)],
    ids=["BASE", "BIG", "SMALL", "TINY"],
)
def test_parameters_are_counted(config, expected):
    """Table 3 prints 65 and 213 million for base and big; what was counted there is claim Q4."""
    sizes = (config.vocab_size, config.d_model, config.d_ff, config.h, config.N, config.d_k, config.d_v)
    assert count(config) == formula(*sizes) == expected


def test_what_each_switch_adds_to_the_parameters():
    paper = count(MODEL)
    assert paper == formula(VOCABULARY, D_MODEL, D_FF, H, MODEL.N, D_K, D_V)
    assert count(MODEL, norm_order="pre") == paper + 2 * 2 * D_MODEL
    assert count(MODEL, attention_bias=True) == paper + 3 * MODEL.N * (2 * H * D_K + H * D_V + D_MODEL)
    assert count(MODEL, positions="learned") == paper + MODEL.max_length * D_MODEL
    assert count(MODEL, tied="target") == paper + VOCABULARY * D_MODEL
    assert count(MODEL, tied="none") == paper + 2 * VOCABULARY * D_MODEL
    assert count(MODEL, activation="gelu", scale_embeddings=False, p_drop=0.5, norm_eps=0.1) == paper


def test_how_parameters_start():
    """Xavier-uniform projections, variance 1/d_model for the vectors of tokens, norms that change nothing."""
    model = Transformer(TINY.replace(vocab_size=1009, attention_bias=True))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            bound = math.sqrt(6 / (module.in_features + module.out_features))
            assert bound * 0.99 < module.weight.abs().max() <= bound
            assert module.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
            assert (module.bias == 0).all()
        elif isinstance(module, LayerNorm):
            assert (module.gamma == 1).all()
            assert (module.beta == 0).all()
        elif isinstance(module, Embedding):
            assert module.weight.std().item() == pytest.approx(1 / math.sqrt(128), rel=0.02)


def test_one_seed_makes_one_model():
    models = []
    for _ in range(2):
        torch.manual_seed(5)
        models.append(Transformer(MODEL))
    assert all(torch.equal(a, b) for a, b in zip(*(model.parameters() for model in models), strict=True))


# A module like any other


@pytest.mark.parametrize("changes", [{}, {"tied": "none", "positions": "learned"}], ids=["tied", "apart"])
def test_the_state_of_one_model_makes_another_the_same(changes):
    first, second = transformer(1, **changes), transformer(2, **changes)
    first(SOURCE, TARGET)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    result = second.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert (result.missing_keys, result.unexpected_keys) == ([], [])
    assert torch.equal(first(SOURCE, TARGET), second(SOURCE, TARGET))
    assert (second.generator.weight is second.source_embedding.weight) == (not changes)


def test_the_state_holds_parameters_alone_and_the_tied_matrix_once_in_memory():
    model = transformer()
    model(SOURCE, TARGET)
    state = model.state_dict()
    assert list(state) == [name for name, _ in model.named_parameters(remove_duplicate=False)]
    shared = [name for name, tensor in state.items() if tensor.data_ptr() == model.generator.weight.data_ptr()]
    assert shared == ["source_embedding.weight", "target_embedding.weight", "generator.weight"]


def test_a_state_that_does_not_fit_is_refused():
    with pytest.raises(RuntimeError, match="Unexpected key"):
        transformer().load_state_dict(transformer(N=3).state_dict())
    with pytest.raises(RuntimeError, match="size mismatch"):
        transformer().load_state_dict(transformer(d_ff=13).state_dict())


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda model: pickle.loads(pickle.dumps(model))}


@pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("changes", [{}, {"positions": "learned", "norm_order": "pre"}], ids=["paper's", "other"])
def test_copies_after_a_forward_pass_are_equal_and_apart(duplicate, changes):
    model = transformer(**changes).train()
    model(SOURCE, TARGET).sum().backward()
    other = duplicate(model.eval())
    expected = model(SOURCE, TARGET)
    assert torch.equal(other(SOURCE, TARGET), expected)
    assert other.config == model.config
    assert other.generator.weight is other.source_embedding.weight is other.target_embedding.weight
    with torch.no_grad():
        other.generator.weight.zero_()
    assert torch.equal(model(SOURCE, TARGET), expected)


def test_a_pass_in_inference_mode_leaves_the_model_trainable():
    model = transformer()
    with torch.inference_mode():
        model(SOURCE, TARGET)
    copy.deepcopy(model)(SOURCE, TARGET).sum().backward()
    model(SOURCE, TARGET).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.5)], ids=str)
def test_lower_precision_stays_near(dtype, tolerance):
    model = transformer()
    expected = model(SOURCE, TARGET)
    model = model.to(dtype)
    logits = model(SOURCE, TARGET)
    assert logits.dtype == dtype
    assert largest_difference(logits.double(), expected) < tolerance
    logits.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    memory = model.encode(SOURCE)
    cached = model.decode(TARGET, memory, model.new_cache(memory, M))
    assert cached.dtype == dtype


def test_autocast_keeps_the_model_near():
    model = transformer().float()
    expected = model(SOURCE, TARGET)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(SOURCE, TARGET)
    assert logits.dtype == torch.bfloat16
    assert largest_difference(logits.float(), expected) < 0.5


def test_shapes_alone_can_be_made():
    with torch.device("meta"):
        model = Transformer(BASE)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model.generator.weight is model.source_embedding.weight


def test_parameters_may_be_passed_from_outside():
    model = transformer()
    parameters = {name: 2 * parameter for name, parameter in model.named_parameters()}
    doubled = copy.deepcopy(model)
    for parameter in doubled.parameters():
        parameter.data *= 2
    outside = torch.func.functional_call(model, parameters, (SOURCE, TARGET))
    assert torch.equal(outside, doubled(SOURCE, TARGET))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_every_integer_type_is_taken(dtype):
    model = transformer()
    assert torch.equal(model(SOURCE.to(dtype), TARGET.to(dtype)), model(SOURCE, TARGET))


def test_the_ids_are_left_alone():
    source, target = SOURCE.clone(), TARGET.clone()
    transformer()(source, target)
    assert torch.equal(source, SOURCE)
    assert torch.equal(target, TARGET)


def test_a_training_step_lowers_the_loss():
    model = settled(Transformer(MODEL)).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = F.cross_entropy(model(SOURCE, TARGET[:, :-1]).flatten(0, 1), TARGET[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4


# Recording


def test_every_attention_of_the_model_is_recorded():
    model = transformer()
    with record_attention(model) as recorded:
        logits = model(SOURCE, TARGET)
    assert torch.equal(logits, model(SOURCE, TARGET))
    shapes = {name: [tuple(weights.shape) for weights in calls] for name, calls in recorded.items()}
    expected = {}
    for i in range(MODEL.N):
        expected[f"encoder.{i}.self_attention"] = [(BATCH, H, N, N)]
    for i in range(MODEL.N):
        expected[f"decoder.{i}.self_attention"] = [(BATCH, H, M, M)]
        expected[f"decoder.{i}.cross_attention"] = [(BATCH, H, M, N)]
    assert shapes == expected
    for name, [weights] in recorded.items():
        assert largest_difference(weights.sum(-1), torch.ones(weights.shape[:-1])) < TOLERANCE
        if "decoder" in name and "self" in name:
            assert (weights.triu(1) == 0).all()
        else:
            assert (weights[1, ..., 4:] == 0).all(), "the padding of the second sentence"


# What is refused


@pytest.mark.parametrize(("config", "got"), [(None, "NoneType"), (512, "int"), ({"d_model": 512}, "dict")])
def test_a_model_is_made_from_a_config(config, got):
    with pytest.raises(TypeError, match=rf"^config must be a TransformerConfig, got {got}\.$"):
        Transformer(config)


NOT_IDS = {
    "list": ([[1, 2]], TypeError, "must be a tensor of integers, got list."),
    "float": (torch.ones(BATCH, M), TypeError, "must be a tensor of integers, got a tensor of torch.float32."),
    "bool": (torch.ones(BATCH, M).bool(), TypeError, "must be a tensor of integers, got a tensor of torch.bool."),
    "None": (None, TypeError, "must be a tensor of integers, got NoneType."),
    "1-D": (tokens(M), ValueError, "must have the shape (batch, n), got (5,)."),
    "3-D": (tokens(BATCH, M, 1), ValueError, "must have the shape (batch, n), got (2, 5, 1)."),
    "empty": (tokens(BATCH, 0), ValueError, "must hold at least one token for each sentence, got (2, 0)."),
}


@pytest.mark.parametrize("name", ["source", "target"])
@pytest.mark.parametrize(("ids", "error", "message"), NOT_IDS.values(), ids=NOT_IDS)
def test_ids_have_two_axes_and_are_integers(name, ids, error, message):
    with pytest.raises(error) as caught:
        transformer()(**{"source": SOURCE, "target": TARGET, name: ids})
    assert str(caught.value) == f"{name} {message}"


@pytest.mark.parametrize("name", ["source", "target"])
@pytest.mark.parametrize("wrong", [-1, -VOCABULARY, VOCABULARY, 10**9])
@pytest.mark.parametrize("place", [(0, 0), (-1, -1)], ids=["first", "last"])
def test_an_id_is_a_tokens(name, wrong, place):
    ids = {"source": tokens(BATCH, N), "target": tokens(BATCH, M)}
    ids[name][place] = wrong
    with pytest.raises(ValueError, match=rf"^{name}: ids must be from 0 to 28, got -?\d+ to \d+\.$") as caught:
        transformer()(**ids)
    assert str(wrong) in str(caught.value)


@pytest.mark.parametrize("name", ["source", "target"])
def test_learned_positions_end(name):
    model = transformer(positions="learned", max_length=7)
    ids = {"source": tokens(BATCH, 7), "target": tokens(BATCH, 7)}
    model(**ids)
    message = rf"^{name}: n = 8 positions from 0 on reach beyond the 7 learned ones \(max_length\)\.$"
    with pytest.raises(ValueError, match=message):
        model(**ids | {name: tokens(BATCH, 8)})


def test_sinusoids_do_not_end():
    assert transformer(max_length=1)(tokens(1, 200), tokens(1, 300)).isfinite().all()


@pytest.mark.parametrize(("source", "target"), [(BATCH, 1), (1, BATCH), (BATCH, 3)])
def test_every_target_has_a_source(source, target):
    message = rf"^memory must hold as many sentences as the target, got {source} beside {target}\.$"
    with pytest.raises(ValueError, match=message):
        transformer()(tokens(source, N), tokens(target, M))


@pytest.mark.parametrize("row", [[PAD, 5, 6, 7, 8], [5, 6, 7, PAD, 8], [PAD, PAD, PAD, PAD, 8]], ids=str)
def test_padding_in_the_target_stands_at_the_end(row):
    """Before a token it would be attended to."""
    target = tokens(BATCH, M)
    target[1] = torch.tensor(row)
    message = r"^target must have its padding \(id 1\) at the end of each sentence, but some stands before a token\.$"
    model = transformer()
    with pytest.raises(ValueError, match=message):
        model(SOURCE, target)
    memory = model.encode(SOURCE)
    with pytest.raises(ValueError, match=message):
        model.decode(target, memory, model.new_cache(memory, M))


@pytest.mark.parametrize(
    ("spoil", "got"),
    [
        (lambda memory: memory.states, "a tensor of torch.float64"),
        (lambda memory: tuple(memory), "tuple"),
        (lambda memory: None, "NoneType"),
    ],
    ids=["states", "tuple", "None"],
)
def test_the_memory_is_what_encode_gave(spoil, got):
    model = transformer()
    memory = spoil(model.encode(SOURCE))
    for use in (lambda: model.decode(TARGET, memory), lambda: model.new_cache(memory, M)):
        with pytest.raises(TypeError, match=rf"^memory must be a Memory, got {got}\.$"):
            use()


def test_the_masks_of_a_memory_are_boolean():
    model = transformer()
    states = model.encode(SOURCE).states
    with pytest.raises(TypeError, match=r"^mask must be a boolean tensor in which True means 'may attend'"):
        model.decode(TARGET, Memory(states, torch.ones(BATCH, 1, 1, N)))
    with pytest.raises(ValueError, match="does not broadcast to the scores"):
        model.decode(TARGET, Memory(states, torch.ones(BATCH, 1, 1, N + 1, dtype=torch.bool)))


@pytest.mark.parametrize("stage", ["encode", "decode", "generator"])
def test_stages_refuse_what_another_takes(stage):
    """Hidden states for ids, ids for hidden states."""
    model = transformer()
    wrong = {
        "encode": lambda: model.encode(normal(BATCH, N)),
        "decode": lambda: model.decode(normal(BATCH, N), model.encode(SOURCE)),
        "generator": lambda: model.generator(TARGET),
    }
    with pytest.raises(
        TypeError, match=r"^(source|target|hidden) must be a (tensor of integers|floating-point tensor)"
    ):
        wrong[stage]()
