"""How fast the simulator is, as ratios to NumPy or to eager float32 on the CPU, measured in one run on one thread.

    python benchmarks/simulator.py [--json] [--only PART ...]

Each ratio is taken between medians of interleaved repetitions, so that a busy machine slows both sides. The last line is one JSON object.
Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from simulator_models import bert
from torch import Tensor

from adapterc.spyre_runtime.backend import compile_log, spyre
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


def _model(name: str, layers: int, length: int, hidden: int, heads: int, inner: int) -> list[Result]:
    """Warm forward against eager float32 on the CPU, by both executors, and the time to compile."""
    sizes = {"hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": inner}
    reference = bert(layers, **sizes)
    x = torch.randn(1, length, hidden)
    model = bert(layers, **sizes).half().to("spyre")
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


@contextlib.contextmanager
def _minilm() -> Iterator[tuple[torch.nn.Module, torch.nn.Module]]:
    """all-MiniLM-L6-v2 with its own weights: stock on the CPU, and patched by the shipped adapters on the device."""
    from adapterc import models, specs
    from adapterc.build import built
    from adapterc.demo import minilm_folder

    stock, model = (models.load(minilm_folder()).model.eval() for _ in range(2))
    with built(specs.find(())) as (_, package):
        handle = package.install(model)
        yield stock, model.to("spyre", torch.float16)
        handle.remove()


def encoder() -> list[Result]:
    """Whole MiniLM, ids in and hidden states out. Compilation is told in CPU seconds, which on one idle thread are its seconds."""
    ids = torch.randint(1000, 30000, (1, 128), generator=torch.Generator().manual_seed(0))
    spent: list[float] = []

    def timed(graph: torch.fx.GraphModule, inputs: list[object]) -> Callable[..., object]:
        start = time.process_time()
        compiled = spyre(graph, inputs)
        spent.append(time.process_time() - start)
        return compiled

    with _minilm() as (stock, model), torch.no_grad():
        inputs = {"input_ids": ids.to("spyre"), "attention_mask": torch.ones_like(ids).to("spyre")}
        walls = []
        for _ in range(3):
            torch._dynamo.reset()
            known = len(compile_log())
            compiled = torch.compile(model, backend=timed, dynamic=False)
            compiled(**inputs)
            walls.append(sum(record.seconds for record in compile_log()[known:]))
        first, *again = spent
        detail = f"CPU seconds, the first time; {min(again):.2f} when repeated; wall {walls[0]:.2f} and {min(walls[1:]):.2f}"
        return [
            Result("compile: MiniLM with its weights and adapters, capture to plan", first, "s", 3.0, detail),
            _ratio(
                "fast: MiniLM, 128 tokens, warm, against eager float32",
                lambda: compiled(**inputs),
                lambda: stock(input_ids=ids, attention_mask=torch.ones_like(ids)),
                1.5,
            ),
        ]


@dataclass(frozen=True)
class _Operands:
    x: Tensor
    y: Tensor
    weight: Tensor
    bias: Tensor
    ids: Tensor
    mask: Tensor


# One of each class of op; what torch takes apart into several (linear, layer norm, attention) pays for each of them.
_EAGER: dict[str, Callable[[_Operands], object]] = {
    "add": lambda t: t.x + t.y,
    "mul by a number": lambda t: t.x * 2.0,
    "matmul": lambda t: t.x @ t.weight,
    "softmax": lambda t: torch.softmax(t.x, -1),
    "gelu": lambda t: F.gelu(t.x),
    "sum": lambda t: t.x.sum(-1),
    "where": lambda t: torch.where(t.mask, t.x, t.y),
    "comparison": lambda t: t.x > t.y,
    "cast": lambda t: t.x.float(),
    "view": lambda t: t.x.view(8, 2, 32),
    "transpose": lambda t: t.x.transpose(0, 1),
    "slice": lambda t: t.x[:, 3:9],
    "cat": lambda t: torch.cat([t.x, t.y]),
    "embedding": lambda t: F.embedding(t.ids, t.weight),
    "add in place": lambda t: t.x.add_(0.0),
    "copy": lambda t: t.x.copy_(t.y),
}


def eager_ops() -> list[Result]:
    """What an op on the device costs beyond the same op on the CPU: CPU time, the best of several rounds."""
    host = _Operands(
        *(torch.randn(*size) for size in ((8, 64), (8, 64), (64, 64), (64,))), torch.randint(0, 64, (8,)), torch.rand(8, 64) > 0.5
    )
    device = _Operands(*((v.half() if v.is_floating_point() else v).to("spyre") for v in vars(host).values()))
    count = 200

    def microseconds(op: Callable[[_Operands], object], operands: _Operands) -> float:
        best = float("inf")
        with torch.no_grad():
            op(operands)
            for _ in range(7):
                start = time.process_time()
                for _ in range(count):
                    op(operands)
                best = min(best, (time.process_time() - start) / count * 1e6)
        return best

    found = {name: microseconds(op, device) - microseconds(op, host) for name, op in _EAGER.items()}
    worst = max(found, key=found.__getitem__)
    detail = ", ".join(f"{name} {value:.0f}" for name, value in found.items())
    return [Result(f"eager: overhead per op, the worst of {len(found)} ({worst})", found[worst], "us", 40.0, detail)]


def _alone(measurement: str) -> dict[str, float]:
    """A measurement of simulator_models.py in a process of its own."""
    script = Path(__file__).with_name("simulator_models.py")
    done = subprocess.run([sys.executable, str(script), measurement], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def memory() -> list[Result]:
    found = _alone("memory")
    detail = f"peak grew by {found['grown']:.0f} MB for {found['megabytes']:.0f} MB of float16 weights (12 layers of 1024)"
    return [Result("memory: peak over the model's own bytes", found["ratio"], "x", 2.5, detail)]


def decoder() -> list[Result]:
    """Qwen3-0.6B's shape: a prompt of 64 tokens and 8 steps by stock generate(), static cache, fast executor."""
    device, cpu = _alone("decoder-device"), _alone("decoder-cpu")
    against = f"{device['seconds']:.1f} against {cpu['seconds']:.1f} CPU seconds; compiling {device['graphs']:.0f} graphs took {device['first'] - device['seconds']:.0f}"
    return [
        Result("decoder: generate(), warm, against float32 on the CPU", device["seconds"] / cpu["seconds"], "x", 5.0, against),
        Result("decoder: peak memory", device["gigabytes"], "GB", 8.0, "of the whole process, torch included"),
    ]


PARTS: dict[str, Callable[[], list[Result]]] = {
    "kernels": kernels,
    "layers": layers,
    "encoder": encoder,
    "eager": eager_ops,
    "memory": memory,
    "decoder": decoder,
}
SLOW = ("decoder",)  # minutes, so only when asked for


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    quick = [part for part in PARTS if part not in SLOW]
    parser.add_argument("--only", nargs="+", choices=PARTS, default=quick, help=f"parts to run (by default all but {', '.join(SLOW)})")
    arguments = parser.parse_args()
    if any(os.environ.get(k) != v for k, v in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})  # read once, when the libraries load
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    results = []
    for part in arguments.only:
        for r in PARTS[part]():
            results.append(r)
            target = f" (at most {r.target:g})" if r.target is not None else ""
            if not arguments.json:
                print(f"{'MISSED ' if r.missed else ''}{r.name}: {r.value:.2f} {r.unit}{target}, {r.detail}", flush=True)
    missed = [r.name for r in results if r.missed]
    print(json.dumps({"results": [{**asdict(r), "missed": r.missed} for r in results], "missed": missed, "load_before": load}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
