"""A checkpoint of a run as a Hugging Face directory, or as an adapter for PEFT."""

import dataclasses
import json
import pathlib
import tempfile
from typing import Any

import jax
import orbax.checkpoint as ocp

from agentic_jax.models import hf_weights, lora
from agentic_jax.recipe import Recipe, build_rl, build_sft
from agentic_jax.sources import Model


def export_model(
    workdir: pathlib.Path,
    out: pathlib.Path,
    *,
    step: int | None,
    adapter: bool,
    dtype: str | None,
) -> int:
    """Writes the parameters of one checkpoint of an RL or SFT run; returns its step.

    Nothing of the optimizer is read, and one device is enough, whatever the run's mesh.

    Args:
        workdir: of the run, which may be under way. Its first model must still be where
            config.json says.
        out: directory that must not exist yet.
        step: that was saved; None is the newest.
        adapter: writes the adapter alone, as PEFT loads it onto the run's first model.
            Otherwise adapters are merged into the weights.
        dtype: of merged or whole weights; None keeps float32.

    Raises:
        FileNotFoundError: no run, or no checkpoint of that step.
        FileExistsError: out is there already.
        ValueError: an adapter is asked for of a run that has none.
    """
    hf_weights.check_absent(out)
    recipe = _read_recipe(workdir)
    model: Model = recipe.model()
    if adapter and not model.lora:
        raise ValueError(f"the run in {workdir} trains all weights: it has no adapter")
    trained = model.params
    if model.lora:
        trained = lora.init_adapter(
            jax.random.key(0), dataclasses.replace(model.config, lora=model.lora)
        )
    trained, step = restore_params(workdir / "checkpoints", trained, step=step)
    if adapter:
        base = recipe.config["model"].get("path", "")
        lora.save_adapter(trained, model.lora, out, base=base)
        return step
    if model.lora:
        trained = lora.merge(model.params, trained, model.lora)
    with tempfile.TemporaryDirectory() as tokenizer:
        model.tokenizer.save_pretrained(tokenizer)
        hf_weights.save(trained, model.config, out, dtype=dtype, copy_from=tokenizer)
    return step


def restore_params(
    directory: pathlib.Path, template: Any, *, step: int | None
) -> tuple[Any, int]:
    """The parameters of a checkpoint without its optimizer state, and its step.

    Args:
        directory: of a Checkpointer; nothing in it is changed.
        template: tree of arrays of the same shapes, which lie where the result will.
        step: that was saved; None is the newest.

    Raises:
        FileNotFoundError: there is no such checkpoint.
    """
    with ocp.CheckpointManager(
        directory.absolute(), options=ocp.CheckpointManagerOptions(read_only=True)
    ) as manager:
        steps = sorted(manager.all_steps())
        step = (steps or [None])[-1] if step is None else step
        if step not in steps:
            shown = ", ".join(map(str, steps)) or "no step"
            raise FileNotFoundError(
                f"{directory} holds no checkpoint of step {step}; it has {shown}"
            )
        wanted = {"params": jax.tree.map(ocp.utils.to_shape_dtype_struct, template)}
        arguments = ocp.args.PyTreeRestore(
            wanted,
            restore_args=ocp.checkpoint_utils.construct_restore_args(wanted),
            partial_restore=True,
        )
        restored = manager.restore(step, args=ocp.args.Composite(state=arguments))
    return restored["state"]["params"], step


def _read_recipe(workdir: pathlib.Path) -> Recipe:
    path = workdir / "config.json"
    if not path.exists():
        raise FileNotFoundError(f"{workdir} holds no run: there is no config.json")
    config = json.loads(path.read_text("utf-8"))
    is_rl = "prompts_per_step" in config
    return build_rl(config) if is_rl else build_sft(config)
