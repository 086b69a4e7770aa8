"""How fast the simulator is, as ratios to NumPy or to eager float32 on the CPU, measured in one run on one thread.

    python benchmarks/simulator.py [--json] [--only PART ...]

Each ratio is taken between medians of interleaved repetitions, so that a busy machine slows both sides. Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from adapterc.spyre_runtime.backend import compile_log
from adapterc.spyre_runtime.settings import settings

Run = Callable[[], object]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Result:
    """`value` in `unit`; `target` is the most that is allowed, None where there is none."""

    name: str
    value: float
    unit: str
    target: float | None
    detail: str

    @property
    def missed(self) -> bool:
        return self.target is not None and self.value > self.target


def _medians(subject: Run, reference: Run, repetitions: int) -> tuple[float, float]:
    """Seconds of each, after one warm-up, measured in turns."""
    subject(), reference()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repetitions):
        for run, seconds in zip((subject, reference), times, strict=True):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def _ratio(name: str, subject: Run, reference: Run, target: float | None, repetitions: int = 7) -> Result:
    ours, theirs = _medians(subject, reference, repetitions)
    return Result(name, ours / theirs, "x", target, f"{ours * 1e3:.1f} ms against {theirs * 1e3:.1f} ms")


def _on_device(function: Callable[..., Tensor], arrays: tuple[np.ndarray, ...], executor: str) -> Run:
    """A compiled function on device copies of float32 arrays, ready to call."""
    inputs = [torch.from_numpy(a).to(torch.float16).to("spyre") for a in arrays]
    compiled = torch.compile(function, backend="spyre", dynamic=False)

    def run() -> object:
        with torch.no_grad(), settings(executor=executor):
            return compiled(*inputs)

    return run


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _rms_norm(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x * (1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)) * w


def kernels() -> list[Result]:
    """The kernels that a public simulator of the card was timed on (161 x, 90 x and 87 x NumPy)."""
    random = np.random.default_rng(0)

    def array(*size: int) -> np.ndarray:
        return random.standard_normal(size, dtype=np.float32)

    cases: list[tuple[str, Callable[..., Tensor], Callable[..., np.ndarray], tuple[np.ndarray, ...], float]] = [
        ("matmul 1024^3", torch.matmul, np.matmul, (array(1024, 1024), array(1024, 1024)), 4.0),
        ("softmax 512x4096", lambda x: torch.softmax(x, -1), _softmax, (array(512, 4096),), 10.0),
        ("RMSNorm 2048x4096", lambda x, w: F.rms_norm(x, (4096,), w, 1e-6), _rms_norm, (array(2048, 4096), array(4096)), 10.0),
    ]
    results = []
    for name, function, reference, arrays, target in cases:
        torch._dynamo.reset()
        for executor, limit in (("tiled", target), ("fast", None)):
            run = _on_device(function, arrays, executor)
            results.append(_ratio(f"{executor}: {name}, against NumPy float32", run, lambda r=reference, a=arrays: r(*a), limit))
    return results


def _bert(layers: int, **sizes: int) -> torch.nn.Module:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertEncoder

    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=layers, attn_implementation="sdpa", **sizes)

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = BertEncoder(config)

        def forward(self, x: Tensor) -> Tensor:
            return self.encoder(x)[0]  # type: ignore[no-any-return]

    return Encoder().eval()


def _model(name: str, layers: int, length: int, hidden: int, heads: int, inner: int) -> list[Result]:
    """Warm forward against eager float32 on the CPU, by both executors, and the time to compile."""
    sizes = {"hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": inner}
    reference = _bert(layers, **sizes)
    x = torch.randn(1, length, hidden)
    model = _bert(layers, **sizes).half().to("spyre")
    x_device = x.half().to("spyre")
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="spyre", dynamic=False)

    def run(executor: str) -> Run:
        def once() -> object:
            with torch.no_grad(), settings(executor=executor):
                return compiled(x_device)

        return once

    def eager() -> object:
        with torch.no_grad():
            return reference(x)

    known = len(compile_log())
    run("fast")()
    seconds = sum(record.seconds for record in compile_log()[known:])
    against = f"{name}, warm, against eager float32"
    return [
        Result(f"compile: {name}, capture to plan", seconds, "s", 3.0, f"{layers} layers"),
        _ratio(f"fast: {against}", run("fast"), eager, 1.5),
        _ratio(f"tiled: {against}", run("tiled"), eager, None, repetitions=3),
    ]


def layers() -> list[Result]:
    return _model("BERT-base-shaped layer, 128 tokens", 1, 128, 768, 12, 3072)


def encoder() -> list[Result]:
    """The encoder of all-MiniLM-L6-v2 with heads of 64, as an adapter grows them (32 of its own are refused)."""
    return _model("MiniLM-shaped encoder, 128 tokens", 6, 128, 384, 6, 1536)


def eager_ops() -> list[Result]:
    """What an op on the device costs beyond the same op on the CPU."""
    x, y = torch.randn(8, 64), torch.randn(8, 64)
    device = [t.half().to("spyre") for t in (x, y)]
    count = 300

    def many(a: Tensor, b: Tensor) -> Run:
        def run() -> None:
            with torch.no_grad():
                for _ in range(count):
                    torch.add(a, b)

        return run

    ours, theirs = _medians(many(*device), many(x, y), 7)
    return [Result("eager: add on the device, overhead per op", (ours - theirs) / count * 1e6, "us", 40.0, f"{count} calls")]


PARTS: dict[str, Callable[[], list[Result]]] = {"kernels": kernels, "layers": layers, "encoder": encoder, "eager": eager_ops}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run")
    arguments = parser.parse_args()
    if any(os.environ.get(k) != v for k, v in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})  # read once, when the libraries load
    torch.set_num_threads(1)
    results = [result for part in arguments.only for result in PARTS[part]()]
    if arguments.json:
        print(json.dumps([{**asdict(r), "missed": r.missed} for r in results], indent=1))
    else:
        for r in results:
            target = f" (at most {r.target:g})" if r.target is not None else ""
            print(f"{'MISSED ' if r.missed else ''}{r.name}: {r.value:.2f} {r.unit}{target}, {r.detail}")
    return 1 if any(r.missed for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
