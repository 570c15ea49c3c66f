"""The loss of a checkpoint on the next batch, from an independent GPT-2 forward in NumPy, double precision."""

import h5py
import numpy as np

import support

DECK = {
    "run.steps": 8,
    "train.learning_rate": 1e-2,
    "checkpoint.interval": 4,
    "output.evaluation_interval": 0,
}
STEP = 4


def layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    exponential = np.exp(x - x.max(-1, keepdims=True))
    return exponential / exponential.sum(-1, keepdims=True)


class Gpt2:
    """Radford et al. 2019, as Hugging Face names its tensors; linear weights are [out, in]."""

    def __init__(self, file, heads):
        with h5py.File(file) as data:
            self.tensors = {name: data["model"][name][...].astype(np.float64) for name in data["model"]}
        self.heads = heads
        self.layers = sum(name.endswith(".ln_1.weight") for name in self.tensors)
        self.head = self.tensors.get("lm_head.weight", self.tensors["transformer.wte.weight"])

    def pair(self, name):
        return self.tensors[f"transformer.{name}.weight"], self.tensors[f"transformer.{name}.bias"]

    def linear(self, name, x):
        weight, bias = self.pair(name)
        return x @ weight.T + bias

    def attention(self, name, x):
        batch, length, width = x.shape
        query, key, value = (
            part.reshape(batch, length, self.heads, -1).transpose(0, 2, 1, 3)
            for part in np.split(self.linear(f"{name}.c_attn", x), 3, axis=-1)
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(width / self.heads)
        scores[..., np.triu(np.ones((length, length), bool), 1)] = -np.inf
        mixed = (softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(batch, length, width)
        return self.linear(f"{name}.c_proj", mixed)

    def losses(self, tokens, targets):
        x = self.tensors["transformer.wte.weight"][tokens] + self.tensors["transformer.wpe.weight"][: tokens.shape[1]]
        for layer in range(self.layers):
            block = f"h.{layer}"
            x = x + self.attention(f"{block}.attn", layer_norm(x, *self.pair(f"{block}.ln_1")))
            hidden = self.linear(f"{block}.mlp.c_fc", layer_norm(x, *self.pair(f"{block}.ln_2")))
            x = x + self.linear(f"{block}.mlp.c_proj", gelu(hidden))
        logits = layer_norm(x, *self.pair("ln_f")) @ self.head.T
        return -np.log(np.take_along_axis(softmax(logits), targets[..., None], axis=-1)[..., 0])


def compare(name, ranks, changes):
    changes = {**DECK, **changes, "output.directory": name}
    support.train(ranks, name, changes)
    file = support.checkpoint(name, STEP)
    arguments = ["deck.toml", "--checkpoint", file, "--dump-batch", f"{name}.h5", *support.overrides(changes)]
    evaluated = support.run(ranks, "eval", *arguments)
    support.assert_contains(evaluated.output, '"batch_loss"')
    with h5py.File(f"{name}.h5") as dump:
        tokens, targets, losses = (dump[key][...] for key in ("tokens", "targets", "loss"))
    model = Gpt2(file, support.BASE_DECK["model.heads"])
    assert model.layers == support.BASE_DECK["model.layers"]
    assert ("lm_head.weight" in model.tensors) != changes.get("model.tied", False)
    assert tokens.shape == losses.shape == (8, 32), tokens.shape
    assert (tokens[:, 1:] == targets[:, :-1]).all(), "targets are not the next tokens"

    expected = model.losses(tokens, targets)
    worst = np.max(np.abs(losses - expected) / expected)
    mean = abs(losses.mean(dtype=np.float64) / expected.mean() - 1)
    traced = abs(support.read_trace(name)["loss"][STEP] / expected.mean() - 1)
    print(f"  {name}: per token {worst:.1e}, mean {mean:.1e}, trace {traced:.1e}")
    assert worst < 1e-4 and mean < 1e-5 and traced < 1e-5
    # The model has left its initial state, or an error in the blocks would not show.
    assert abs(expected.mean() - np.log(64)) > 0.02, expected.mean()


def test_untied():
    compare("untied", 2, {})


def test_tied():
    compare("tied", 1, {"model.tied": True})


def test_short_sequences():
    # A context longer than the sequence: positions from 0.
    compare("short", 1, {"model.context": 48, "parallel.stages": 2})


if __name__ == "__main__":
    support.main([test_untied, test_tied, test_short_sequences])
