"""localspec's plain decoding against a bare llama_decode loop on the unpatched library.

    python benchmarks/plain_overhead.py --stock-python STOCK_VENV/bin/python [MODEL] [--tokens 128] [--rounds 8]

The other interpreter has a stock llama-cpp-python and needs nothing else. Both sides keep the model loaded and take
turns; each generates the same number of greedy tokens from the same prompt. Prints tokens per second and the ratio.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
from pathlib import Path
from time import perf_counter

PROMPT = "Write a long story about a lighthouse keeper and the sea."


def bare_loop(path: str, n_threads: int, n_tokens: int) -> None:
    """Serve rounds on stdin/stdout: one line in, the seconds of `n_tokens` greedy steps out. Uses llama_cpp alone."""
    from llama_cpp import llama_cpp as native

    @native.llama_log_callback
    def silent(_level, _text, _data):  # type: ignore[no-untyped-def]
        return None

    native.llama_log_set(silent, None)
    native.llama_backend_init()
    model = native.llama_model_load_from_file(path.encode(), native.llama_model_default_params())
    params = native.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch, params.flash_attn_type = 1024, n_threads, n_threads, 1
    ctx = native.llama_init_from_model(model, params)
    vocab = native.llama_model_get_vocab(model)
    n_vocab = native.llama_vocab_n_tokens(vocab)
    sampler = native.llama_sampler_init_greedy()
    tokens = (ctypes.c_int32 * 256)()
    n = native.llama_tokenize(vocab, PROMPT.encode(), len(PROMPT), tokens, 256, True, True)
    assert n_vocab > 0 and n > 0
    print("ready", flush=True)
    for _ in sys.stdin:
        native.llama_memory_clear(native.llama_get_memory(ctx), False)
        native.llama_decode(ctx, native.llama_batch_get_one(tokens, n))
        token = (ctypes.c_int32 * 1)(native.llama_sampler_sample(sampler, ctx, -1))
        start = perf_counter()
        for _ in range(n_tokens):
            native.llama_decode(ctx, native.llama_batch_get_one(token, 1))
            token[0] = native.llama_sampler_sample(sampler, ctx, -1)
        print(perf_counter() - start, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--stock-python", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()

    import numpy as np

    from localspec.decode import Generator, Limits
    from localspec.engine.model import Model
    from localspec.engine.params import ContextParams, SamplingParams
    from localspec.engine.sampler import ChainSampler
    from localspec.events import DoneEvent
    from localspec.hub import find_model
    from localspec.methods.registry import make_method

    path = find_model(args.model)
    command = [
        args.stock_python,
        str(Path(__file__).resolve()),
        "--serve",
        str(path),
        str(args.threads),
        str(args.tokens),
    ]
    bare = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert bare.stdin and bare.stdout
    bare.stdout.readline()

    model = Model.load(path)
    model.eog = frozenset()  # type: ignore[misc]  # the bare loop does not stop either
    generator = Generator(model, model.new_context(ContextParams(n_ctx=1024, n_threads=args.threads)))
    prompt = model.tokenize(PROMPT, add_special=True, parse_special=True)

    theirs, ours = [], []
    for round_ in range(args.rounds + 1):
        bare.stdin.write("go\n")
        bare.stdin.flush()
        theirs.append(args.tokens / float(bare.stdout.readline()))
        generator.reset()
        sampler = ChainSampler(model, SamplingParams(temperature=0.0))
        sampler.start(prompt)
        method = make_method("plain", curve=None, max_nodes=256)
        *_, done = generator.generate(prompt, sampler, method, Limits(args.tokens))
        assert isinstance(done, DoneEvent) and done.stats.n_tokens == args.tokens
        ours.append(done.stats.tokens_per_second)
        if round_ == 0:  # warm-up
            theirs.clear()
            ours.clear()
    bare.stdin.close()
    ratios = np.array(ours) / np.array(theirs)
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    print(f"{model.description}, {args.threads} threads, {args.tokens} tokens, {args.rounds} rounds")
    print(f"bare loop {np.median(theirs):.2f} tok/s, localspec plain {np.median(ours):.2f} tok/s")
    print(f"ratio {middle:.3f} (quartiles {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--serve":
        bare_loop(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
