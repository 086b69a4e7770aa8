"""Replays oracle rows through the compiler, in worker processes that may hang or die without taking the run along."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import signal
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any

from oracle_rows import Row

if TYPE_CHECKING:
    from adapterc.spyre_runtime.plan import Plan, PlannedOp

Answer = dict[str, Any]
ROW_SECONDS = 90
GRACE_SECONDS = 5
STOP_SECONDS = 5


class _RowTimeout(Exception):
    """The row took longer than its share."""


def _refused(row: Row, verdict: str, kind: str, text: str) -> Answer:
    return {"id": row.id, "verdict": verdict, "error_kind": kind, "error_text": text}


def distinct_programs(plan: Plan) -> list[PlannedOp]:
    """Ops of bundles that differ: the table lists a generated program once, however often it is called.

    Two bundles are one program when they have the same ops over the same loops, and address memory alike: LX and pool by address, other
    tensors by their place among the program's arguments.
    """
    buffers = {b.name: b for b in plan.buffers}
    by_name = {op.name: op for op in plan.ops}
    seen: set[Any] = set()
    ops: list[PlannedOp] = []
    for bundle in plan.bundles:
        group = [by_name[name] for name in bundle.ops]
        operands = [o.buffer for op in group for o in op.inputs] + [op.result.buffer for op in group]
        arguments = list(dict.fromkeys(n for n in operands if buffers[n].lx_address is None and buffers[n].pool_offset is None))

        def place(name: str, arguments: list[str] = arguments) -> Any:
            found = buffers[name]
            return found.lx_address, found.pool_offset, arguments.index(name) if name in arguments else None, found.layout

        program = tuple(
            (op.kernel, op.loops, str(op.parameters), tuple((place(o.buffer), o.size, o.coordinates) for o in (*op.inputs, op.result)))
            for op in group
        )
        if program not in seen:
            seen.add(program)
            ops += group
    return ops


def answer(row: Row) -> Answer:
    """One answer in the form that the oracle's scorer reads; `error_text`, `spans` and `seconds` are for people.

    `spans`: tensors of which a core would address more than it can reach. That is no refusal of the front-end; the device's backend aborts.
    """
    from capture_rows import graphs_of

    from adapterc.spyre_runtime.frontend import compile_graph
    from adapterc.spyre_runtime.profile import load_profile
    from adapterc.spyre_runtime.refusal import Refusal

    profile = load_profile()
    total: Answer = {
        "id": row.id,
        "verdict": "compiles",
        "error_kind": "",
        "restickifies": 0,
        "fallbacks": [],
        "ops": [],
        "bufs": [],
        "spans": [],
    }
    try:
        for graph in graphs_of(row):
            compiled = compile_graph(graph.module, profile, input_layouts=graph.layouts)
            plan = compiled.plan
            total["restickifies"] += compiled.restickifies
            total["fallbacks"] += list(compiled.fallbacks)
            total["spans"] += [str(finding) for finding in plan.spans]
            total["ops"] += [{"op": op.kernel, "it": [[loop.size, loop.cores] for loop in op.loops]} for op in distinct_programs(plan)]
            total["bufs"] += [
                {
                    "ds": list(b.layout.device_size),
                    "sm": list(b.layout.stride_map),
                    "dt": str(b.layout.format),
                    "lx": b.lx_address is not None,
                }
                for b in plan.intermediates
                if b.layout is not None
            ]
    except Refusal as refusal:
        return _refused(row, str(refusal.verdict), str(refusal.kind), str(refusal))
    return total


def _guarded(row: Row) -> Answer:
    """Any failure of our own is an answer too (and counts as wrong unless the oracle's compiler failed in the same way)."""

    def alarm(*_: Any) -> None:
        raise _RowTimeout

    signal.signal(signal.SIGALRM, alarm)
    signal.alarm(ROW_SECONDS)
    started = time.perf_counter()
    try:
        result = answer(row)
    except _RowTimeout:
        result = _refused(row, "error", "replay:timeout", f"no answer within {ROW_SECONDS} s")
    except Exception as error:
        result = _refused(row, "error", f"replay:{type(error).__name__}", "".join(traceback.format_exception(error)[-3:])[-2000:])
    finally:
        signal.alarm(0)
    result["seconds"] = round(time.perf_counter() - started, 3)
    return result


def _work(link: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)  # refusals are answers; torch logs each one with a traceback
    warnings.simplefilter("ignore")
    while (row := link.recv()) is not None:
        link.send(_guarded(row))


@dataclass
class _Worker:
    process: SpawnProcess
    link: Connection
    row: Row | None = None
    deadline: float = 0.0

    def give(self, row: Row) -> None:
        self.row, self.deadline = row, time.monotonic() + ROW_SECONDS + GRACE_SECONDS
        self.link.send(row)

    def stop(self) -> None:
        """Idle workers leave by themselves; busy, hung or dead ones are ended."""
        if self.row is None and self.process.is_alive():
            with contextlib.suppress(BrokenPipeError):
                self.link.send(None)
            self.process.join(STOP_SECONDS)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def _start() -> _Worker:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there,), daemon=True)
    process.start()
    there.close()
    return _Worker(process, here)


@dataclass
class Pool:
    """`jobs` workers; `run` yields answers in the order in which they come. A worker that dies or hangs is replaced."""

    jobs: int
    workers: list[_Worker] = field(default_factory=list)

    def run(self, rows: Sequence[Row]) -> Iterator[Answer]:
        waiting = list(reversed(rows))
        self.workers = [_start() for _ in range(min(self.jobs, len(rows)))]
        try:
            for worker in self.workers:
                worker.give(waiting.pop())
            while any(w.row for w in self.workers):
                busy = [w for w in self.workers if w.row]
                ready = wait([w.link for w in busy], timeout=max(0.0, min(w.deadline for w in busy) - time.monotonic()))
                for worker in busy:
                    if worker.link in ready or time.monotonic() > worker.deadline:
                        yield self._collect(worker)
                        if waiting:
                            worker.give(waiting.pop())
        finally:
            for worker in self.workers:
                worker.stop()

    def _collect(self, worker: _Worker) -> Answer:
        row = worker.row
        assert row is not None
        worker.row = None
        try:
            if worker.link.poll(0):
                received: Answer = worker.link.recv()
                return received
            kind, text = "replay:hang", f"no answer within {ROW_SECONDS} s and the worker does not react"
        except (EOFError, ConnectionResetError):
            kind, text = "replay:crash", f"the worker died (exit code {worker.process.exitcode})"
        worker.process.kill()
        worker.process.join()
        fresh = _start()
        worker.process, worker.link = fresh.process, fresh.link
        return _refused(row, "error", kind, text)
