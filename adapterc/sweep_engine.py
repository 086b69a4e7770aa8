"""Where the rows of a sweep run: processes of this machine, one a row, so that a crash or a hang costs its row only; or an existing Ray cluster."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from adapterc.errors import UserError
from adapterc.sweep_row import STAGES, Outcome, Task

Engine = Callable[[Iterable[Task], int, float], Iterator[Outcome]]
ENGINES = ("local", "ray")
GRACE = 10.0  # seconds that a worker has to end by itself when its parent is gone


@dataclass(frozen=True)
class _Slot:
    """A row that runs. `log`: where the worker's output goes; its end explains a crash."""

    task: Task
    process: BaseProcess
    pipe: Connection
    log: Path
    started: float


def engine(name: str) -> Engine:
    """The engine of this name. Raises UserError ADC612 for an unknown one, ADC609 where Ray is asked for and not installed."""
    if name == "local":
        return local
    if name == "ray":
        try:
            import ray
        except ImportError:
            raise UserError("ADC609", "--engine ray needs the package ray", "pip install 'adapterc[ray]'") from None
        return lambda tasks, jobs, timeout: on_ray(ray, tasks, jobs, timeout)
    raise UserError("ADC612", f"--engine {name} is no engine", f"choose {' or '.join(ENGINES)}")


def local(tasks: Iterable[Task], jobs: int, timeout: float) -> Iterator[Outcome]:
    """Outcomes as they come, at most `jobs` rows at a time, each for `timeout` seconds at most. Leaving the generator ends the workers."""
    context = _context()
    queue, running = iter(tasks), list[_Slot]()
    with tempfile.TemporaryDirectory(prefix="adapterc-sweep-") as folder:
        try:
            exhausted = False
            while True:
                while not exhausted and len(running) < jobs:
                    task = next(queue, None)
                    exhausted = task is None
                    if task is not None:
                        running.append(_start(context, task, Path(folder), timeout))
                if not running:
                    return
                wait([slot.pipe for slot in running], timeout=0.5)
                for slot in list(running):
                    outcome = _finished(slot, timeout)
                    if outcome is not None:
                        running.remove(slot)
                        yield outcome
        finally:
            for slot in running:
                _end(slot)


def _context() -> Any:
    """Workers are forked from a server that has imported everything and run nothing: a row starts at once, in a process without threads."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["adapterc.sweep_worker"])
    return context


def _start(context: Any, task: Task, folder: Path, timeout: float) -> _Slot:
    from adapterc.sweep_worker import work

    receiving, sending = context.Pipe(duplex=False)
    handle, name = tempfile.mkstemp(dir=folder)
    os.close(handle)
    process = context.Process(target=_guarded, args=(work, task, sending, name, timeout), daemon=True)
    process.start()
    sending.close()
    return _Slot(task, process, receiving, Path(name), time.monotonic())


def _guarded(work: Callable[[Task], Outcome], task: Task, pipe: Connection, log: str, timeout: float) -> None:
    """In the worker: output to the log, an end of its own if nobody is left to end it, and the outcome to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    faulthandler.enable(file=descriptor)
    faulthandler.dump_traceback_later(timeout + GRACE, exit=True, file=descriptor)
    outcome = work(task)
    with contextlib.suppress(BrokenPipeError):
        pipe.send(outcome)


def _finished(slot: _Slot, timeout: float) -> Outcome | None:
    """The row's outcome: its own, or that of a worker that died or took too long; None while it runs."""
    seconds = time.monotonic() - slot.started
    if slot.pipe.poll():
        try:
            outcome: Outcome = slot.pipe.recv()
        except EOFError:
            slot.process.join(GRACE)
            outcome = _dead(slot, seconds)
        slot.process.join(GRACE)  # a worker that said its outcome leaves by itself, and takes its semaphores with it
        _end(slot)
        return outcome
    if seconds > timeout:
        _end(slot)
        return Outcome(
            slot.task.key, slot.task.width, STAGES[0], "hang", f"no end within {timeout:.0f} seconds", _last_line(slot.log), seconds=seconds
        )
    return None


def _dead(slot: _Slot, seconds: float) -> Outcome:
    code = slot.process.exitcode
    how = f"exit status {code}" if code is None or code >= 0 else f"signal {signal.Signals(-code).name}"
    return Outcome(
        slot.task.key,
        slot.task.width,
        STAGES[0],
        f"crash: {how}",
        f"the worker died: {_last_line(slot.log) or 'it said nothing'}",
        seconds=seconds,
    )


def _end(slot: _Slot) -> None:
    if slot.process.is_alive():
        slot.process.kill()
    slot.process.join(GRACE)
    slot.pipe.close()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def on_ray(ray: Any, tasks: Iterable[Task], jobs: int, timeout: float) -> Iterator[Outcome]:
    """The same on a Ray cluster that is up already, else on one of this machine. A row is a task of one core in a process of its own."""
    from adapterc.sweep_worker import work_with_own_patches

    if not ray.is_initialized():
        ray.init(address=os.environ.get("RAY_ADDRESS"), num_cpus=None if os.environ.get("RAY_ADDRESS") else jobs, log_to_driver=False)
    remote = ray.remote(num_cpus=1, max_retries=0, max_calls=1)(work_with_own_patches)
    running: dict[Any, tuple[Task, float]] = {}
    queue, packages = iter(tasks), dict[str, Any]()
    exhausted = False
    while running or not exhausted:
        while not exhausted and len(running) < jobs:
            task = next(queue, None)
            exhausted = task is None
            if task is not None:
                if task.patches not in packages:  # other machines do not see the folder
                    packages[task.patches] = ray.put({f.name: f.read_bytes() for f in sorted(Path(task.patches).iterdir()) if f.is_file()})
                running[remote.remote(task, packages[task.patches])] = (task, time.monotonic())
        if not running:
            return
        done, _ = ray.wait(list(running), num_returns=1, timeout=0.5)
        for reference in done:
            task, started = running.pop(reference)
            yield _ray_result(ray, reference, task, time.monotonic() - started)
        for reference, (task, started) in list(running.items()):
            if time.monotonic() - started > timeout:
                del running[reference]
                ray.cancel(reference, force=True)
                yield Outcome(task.key, task.width, STAGES[0], "hang", f"no end within {timeout:.0f} seconds", seconds=timeout)


def _ray_result(ray: Any, reference: Any, task: Task, seconds: float) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayError as error:
        first = (str(error).strip().splitlines() or [""])[0][:300]
        return Outcome(task.key, task.width, STAGES[0], f"crash: {type(error).__name__}", f"the worker died: {first}", seconds=seconds)
    return outcome
