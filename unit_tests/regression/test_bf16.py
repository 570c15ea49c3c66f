"""precision.compute = "bf16": as exact as fp32 where numbers must not depend on ranks or stops, and near it in losses."""

import h5py
import numpy

import support

DECK = {"run.steps": 8, "checkpoint.interval": 4, "checkpoint.keep": 9, "precision.compute": "bf16"}
# Each stored number is off by at most 2^-8 of its size, at random. Losses of about 4 were measured to differ by up to 2e-4 here
# and 5e-4 over inputs/verify/verify.toml; the band is 4 times that. What a wrong kernel or lost weights do is larger by far.
BAND = 2e-3


def changes(**more):
    return {**DECK, **{key.replace("__", "."): value for key, value in more.items()}}


def assert_near(a, b):
    for name in ("loss", "val/loss"):
        one, other = (support.read_trace(out, (name,))[name] for out in (a, b))
        worst = numpy.abs(one - other).max()
        assert 0 < worst < BAND, f"{name} of {a} and {b}: {worst}\n{one}\n{other}"


def test_flush_on_any_ranks():
    support.train(1, "one", changes())
    for ranks in (2, 4):
        support.train(ranks, f"ranks_{ranks}", changes())
        support.assert_same_trace("one", f"ranks_{ranks}")
    support.train(1, "inside", changes(parallel__stages=4))
    support.assert_same_trace("one", "inside")
    trace = support.read_trace("one")
    assert trace["loss"][-1] < trace["loss"][0] - 0.05, trace["loss"]


def test_losses_near_those_of_fp32():
    for name, more in {"plain": {}, "llama": {"model__family": "llama"}, "paci": {"schedule__name": "paci"}}.items():
        more = {**more, "parallel__stages": 2}
        support.train(1, f"{name}_fp32", changes(precision__compute="fp32", **more))
        support.train(1, f"{name}_bf16", changes(**more))
        assert_near(f"{name}_fp32", f"{name}_bf16")


def test_messages_are_half():
    sent = {}
    for precision in ("fp32", "bf16"):
        support.train(2, f"sent_{precision}", changes(precision__compute=precision))
        sent[precision] = sum(support.summary(f"sent_{precision}")["sent_bytes_per_update"]["pipeline"])
    assert sent["fp32"] == 2 * sent["bf16"] > 0, sent


def test_resume():
    for schedule in ("1f1b", "paci", "pipedream-2bw"):
        more = {"schedule__name": schedule}
        whole, pieces = f"{schedule}_whole", f"{schedule}_pieces"
        support.train(2, whole, changes(**more))
        support.train(2, pieces, changes(run__time_limit=1e-3, run__resume="latest", **more), status=75)
        support.train(2, pieces, changes(run__resume="latest", **more))
        support.assert_same_trace(whole, pieces)


def test_checkpoints_hold_masters():
    with h5py.File(support.checkpoint("one", 8)) as file:
        values = file["model/transformer.h.0.attn.c_attn.weight"][...]
    assert values.dtype == numpy.float32
    rounded = (values.view(numpy.uint32) & 0xFFFF) == 0
    assert rounded.mean() < 0.01, "the weights of the checkpoint were rounded to bf16"


def test_replicas():
    two = {"train__microbatches": 2, "parallel__data": 2}
    for mode in ("ddp", "zero1"):
        support.train(4, mode, changes(parallel__mode=mode, **two))
    support.assert_same_trace("ddp", "zero1", ("step", "loss", "val/loss"))  # norms are added up by shards
    for name, more in {"ddp": {}, "fsdp": {"parallel__mode": "fsdp"}, "sdp": {"parallel__mode": "sdp"}}.items():
        support.train(4, f"{name}_bf16", changes(**two, **more))
        support.train(4, f"{name}_fp32", changes(precision__compute="fp32", **two, **more))
        assert_near(f"{name}_fp32", f"{name}_bf16")


if __name__ == "__main__":
    tests = [test_flush_on_any_ranks, test_losses_near_those_of_fp32, test_messages_are_half, test_resume]
    support.main([*tests, test_checkpoints_hold_masters, test_replicas])
