"""Two ways of running an op that must not change its result: other padding, and cores that take turns in random order.

`PadLeak` compares two memories that differ only in what unused lanes hold. `Shaken` lets the cores of an op run in waves: each wave reads memory as
it finds it, and its stores, which go out as whole sticks, may arrive after a later wave has read.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .addressing import address_table
from .findings import Check, Finding, Findings
from .tile_checks import Site
from .tile_ops import Memory

WAVES = 4


class Runner(Protocol):
    def run(self, memory: Memory) -> None: ...


@dataclass(frozen=True)
class Stores:
    """What an op stores, element by element: address and owning core, int64 [elements] both."""

    addresses: Tensor
    cores: Tensor

    @staticmethod
    def of(site: Site) -> Stores:
        loops = [(s, n) for s, n in site.loops if s in site.write.where.tables]
        addresses = address_table(site.write.where, loops)
        lanes = torch.arange(site.lanes)
        cores = torch.zeros([1] * len(loops), dtype=torch.int64)
        for position, (symbol, _) in enumerate(loops):
            share = site.ownership.by_symbol[symbol]
            cores = cores + share.owners.view([-1 if i == position else 1 for i in range(len(loops))])
        cores = cores.expand(addresses.shape).reshape(-1)
        return Stores((addresses.reshape(-1)[:, None] + lanes).reshape(-1), cores.repeat_interleave(len(lanes)))


def _differ(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_floating_point:
        return (a != b) & ~(a.isnan() & b.isnan())
    return a != b


def compare_paddings(site: Site, memory: Memory, other: Memory, findings: Findings) -> None:
    """Report a pad leak where an element that the op stored depends on what padding held."""
    stores = Stores.of(site)
    storage = site.write.storage
    differs = _differ(memory[storage][stores.addresses], other[storage][stores.addresses])
    if not bool(differs.any()):
        return
    first = int(stores.addresses[differs].min())
    cores = tuple(sorted(set(stores.cores[differs].tolist())))
    count = int(differs.sum())
    detail = f"{count} element{'s' * (count != 1)} of the result change with what unused lanes hold, lane {first % site.write.stick} first"
    findings.report(Finding(Check.PAD_LEAK, site.place, detail, site.write.buffer, cores, first // site.write.stick))


def run_shaken(site: Site, runner: Runner, memory: Memory, chance: random.Random, findings: Findings) -> None:
    """Run an op in waves of cores, then report where the result differs from running all cores at once. Leaves the waves' result."""
    storage = site.write.storage
    stick = site.write.stick
    before = memory[storage].clone()
    at_once = {**memory, storage: before.clone()}
    runner.run(at_once)
    stores = Stores.of(site)
    order = sorted(set(stores.cores.tolist()))
    chance.shuffle(order)
    waves = [order[i::WAVES] for i in range(min(WAVES, len(order)))]
    late: list[tuple[Tensor, Tensor]] = []
    for wave in waves:
        trial = {**memory, storage: memory[storage].clone()}
        runner.run(trial)
        mine = torch.isin(stores.cores, torch.tensor(wave))
        sticks = torch.unique(stores.addresses[mine].div(stick, rounding_mode="floor"))
        packet = memory[storage].clone()
        packet[stores.addresses[mine]] = trial[storage][stores.addresses[mine]]
        arrived = (sticks, packet.view(-1, stick)[sticks])
        if chance.random() < 0.5:
            late.append(arrived)
        else:
            _arrive(memory[storage], stick, arrived)
    chance.shuffle(late)
    for arrived in late:
        _arrive(memory[storage], stick, arrived)
    differs = _differ(memory[storage][stores.addresses], at_once[storage][stores.addresses])
    if not bool(differs.any()):
        return
    first = int(stores.addresses[differs].min())
    check = Check.READ_WRITE_RACE if any(r.storage == storage for r in site.reads) else Check.TWO_WRITERS
    cores = tuple(sorted(set(stores.cores[differs].tolist())))
    findings.report(
        Finding(check, site.place, "the result depends on the order in which cores run", site.write.buffer, cores, first // stick)
    )


def _arrive(memory: Tensor, stick: int, packet: tuple[Tensor, Tensor]) -> None:
    sticks, values = packet
    memory.view(-1, stick)[sticks] = values
