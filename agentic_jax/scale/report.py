"""What a plan says: a table, numbers, and what to change if it does not fit."""

from collections.abc import Mapping
from typing import Any

from agentic_jax.scale.collectives import total_bytes
from agentic_jax.scale.flops import executed_flops, forward_flops, step_flops
from agentic_jax.scale.plan import Plan, Program


def summary(plan: Plan) -> dict[str, Any]:
    """The numbers of a plan; sizes in 10^9 bytes on one device, None where not known.

    flops are of the whole micro-batch on all devices, scored and trained on;
    collective_bytes are what one device sends for it. step_seconds and mfu are what
    published figures allow: products at peak, and nothing sent while they run.
    """
    forward = forward_flops(plan.model, [plan.length] * plan.rows)
    times = seconds(plan)
    update = None if times is None else times["grad"]
    peak_flops = plan.topology.chip.flops_per_s
    sent = _all_sent(plan)
    return {
        "topology": plan.topology.name,
        "devices": plan.num_devices,
        "mesh": {axis: size for axis, size in plan.mesh.items() if size > 1},
        "tokens": plan.rows * plan.length,
        "fits": plan.fits,
        "peak_gb_per_chip": _gb(plan.peak),
        "capacity_gb": _gb(plan.topology.chip.memory_bytes),
        **{f"{kind}_gb": _gb(size) for kind, size in plan.held.items()},
        "temporaries_gb": {n: _gb(p.temporaries) for n, p in plan.programs.items()},
        "flops": forward.total + executed_flops(forward, plan.model),
        "collective_bytes": None if sent is None else total_bytes(sent),
        "collectives": sent,
        "step_seconds": times and sum(times.values()),
        "mfu": update
        and step_flops(forward, plan.model) / (plan.num_devices * peak_flops * update),
        "compile_seconds": sum(p.compile_seconds for p in plan.programs.values()),
    }


def _all_sent(plan: Plan) -> dict[str, float] | None:
    """By kind, over all programs; None if it could not be read of one of them."""
    sent: dict[str, float] = {}
    for program in plan.programs.values():
        if program.sent is None:
            return None
        for kind, size in program.sent.items():
            sent[kind] = sent.get(kind, 0.0) + size
    return sent


def seconds(plan: Plan) -> dict[str, float] | None:
    """Of score, gradient and optimizer step of one micro-batch, by published figures.

    Products run at peak, then what is sent goes out over all links; the optimizer step
    reads and writes its state once. What is sent counts nothing if it could not be
    read. None if nothing is published of the chip.
    """
    chip = plan.topology.chip
    if None in (chip.flops_per_s, chip.memory_bytes_per_s, chip.link_bytes_per_s):
        return None
    forward = forward_flops(plan.model, [plan.length] * plan.rows)
    flops = {"score": forward.total, "grad": executed_flops(forward, plan.model)}
    held = plan.held
    moved = 2 * (held["weights"] + held["optimizer"]) + held["gradients"]
    busy = {
        name: count / plan.num_devices / chip.flops_per_s
        for name, count in flops.items()
    } | {"apply": moved / chip.memory_bytes_per_s}
    return {
        name: time + total_bytes(plan.programs[name].sent or {}) / chip.link_bytes_per_s
        for name, time in busy.items()
    }


def table(plan: Plan) -> str:
    """The plan as lines of text."""
    numbers = summary(plan)
    axes = (f"{axis}={size}" for axis, size in numbers["mesh"].items())
    shown = " x ".join(axes) or "one device"
    lines = [
        f"{plan.topology.name}: {plan.num_devices} devices, {shown}; micro-batch of "
        f"{plan.rows} x {plan.length:,} tokens",
        "",
        "on each device, GB",
        *(f"  {kind:<24}{size / 1e9:>9.2f}" for kind, size in plan.held.items()),
        "",
        f"  {'':<10}{'arguments':>11}{'results':>9}{'temporaries':>13}{'beside':>8}"
        f"{'peak':>8}{'sent':>8}{'compiled in':>13}",
    ]
    for name, program in plan.programs.items():
        sizes = (program.arguments, program.results, program.temporaries)
        cells = [f"{size / 1e9:.2f}" for size in (*sizes, program.resident)]
        lines.append(
            f"  {name:<10}{cells[0]:>11}{cells[1]:>9}{cells[2]:>13}{cells[3]:>8}"
            f"{program.peak / 1e9:>8.2f}{_shown_sent(program):>8}"
            f"{program.compile_seconds:>11.0f} s"
        )
    lines += [
        "",
        f"  peak {numbers['peak_gb_per_chip']:.2f} of {numbers['capacity_gb']:.2f} GB: "
        + ("fits" if plan.fits else "does not fit"),
        f"  {numbers['flops']:.3g} floating-point operations on all devices",
    ]
    if numbers["collectives"] is None:
        lines.append("  what is sent could not be read from the compiled program")
    lines += [
        f"  {kind:<24}{size / 1e9:>9.2f} GB sent by each device"
        for kind, size in sorted((numbers["collectives"] or {}).items())
    ]
    times = seconds(plan)
    if times:
        parts = ", ".join(f"{name} {time:.2f}" for name, time in times.items())
        lines.append(
            f"  at least {numbers['step_seconds']:.2f} s by published figures "
            f"({parts}); MFU of the update at most {numbers['mfu']:.0%}"
        )
    return "\n".join(lines + advice(plan))


def _shown_sent(program: Program) -> str:
    return "?" if program.sent is None else f"{total_bytes(program.sent) / 1e9:.2f}"


def advice(plan: Plan) -> list[str]:
    """What to change, most promising first; nothing if the plan fits."""
    if plan.fits:
        return []
    shards = plan.mesh["data"] * plan.mesh["fsdp"] * plan.mesh["expert"]
    held, capacity = sum(plan.held.values()), plan.topology.chip.memory_bytes
    lines = []
    if held > 0.7 * capacity:
        lines.append(
            f"weights, optimizer and gradients alone take {held / 1e9:.1f} GB: take "
            "more devices, and leave mesh.fsdp at -1 so that it cuts them further"
        )
    if plan.model.remat != "full":
        lines.append(f"set model.remat to 'full' (it is {plan.model.remat!r})")
    if plan.model.attention in ("dense", "chunked"):
        lines.append(
            f"set model.attention to 'splash' on TPUs or 'cudnn' on GPUs (it is "
            f"{plan.model.attention!r})"
        )
    if plan.rows > shards:
        lines.append(
            f"set batch.rows_per_microbatch to {shards} (it is {plan.rows}): one row "
            "on each device"
        )
    lines.append("halve batch.logprob_chunk: fewer logits exist at one time")
    if plan.rows <= shards:
        lines.append(
            "double mesh.sequence or mesh.tensor: several devices share one row"
        )
    return ["", "  to make it fit:", *(f"  - {line}" for line in lines)]


def _gb(size: float) -> float:
    return size / 1e9


def json_numbers(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The summary with floats rounded to 4 digits, as the JSON line has it."""
    return {key: _rounded(value) for key, value in numbers.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json_numbers(value)
    return float(f"{value:.4g}") if isinstance(value, float) else value
