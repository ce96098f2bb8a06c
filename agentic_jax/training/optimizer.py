"""AdamW with a clipped gradient norm, and learning-rate schedules by name."""

import jax
import optax

from agentic_jax.config import bind


def constant(*, learning_rate: float, warmup_steps: int) -> optax.Schedule:
    """Linear warm-up over `warmup_steps` updates, then `learning_rate` for ever."""
    return optax.linear_schedule(
        learning_rate / max(warmup_steps, 1), learning_rate, max(warmup_steps - 1, 1)
    )


def cosine(
    *, learning_rate: float, warmup_steps: int, decay_steps: int, end_fraction: float
) -> optax.Schedule:
    """Linear warm-up, then half a cosine that ends after `decay_steps` updates.

    decay_steps is stated, never taken from the length of the run, so that raising
    num_steps does not change the steps already made.
    """
    return optax.warmup_cosine_decay_schedule(
        init_value=learning_rate / max(warmup_steps, 1),
        peak_value=learning_rate,
        warmup_steps=warmup_steps,
        decay_steps=decay_steps,
        end_value=learning_rate * end_fraction,
    )


SCHEDULES = {"constant": constant, "cosine": cosine}


def adamw(
    *, schedule, b1: float, b2: float, eps: float, weight_decay: float, clip_norm: float
) -> optax.GradientTransformation:
    """AdamW on gradients clipped to a global norm; decay spares vectors and scalars.

    Args:
        schedule: {"name": ..., its options}; see SCHEDULES.
        b1, b2, eps, weight_decay: as in optax.adamw.
        clip_norm: largest global gradient norm that is not scaled down.
    """
    return optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.adamw(
            bind(schedule, SCHEDULES)(),
            b1=b1,
            b2=b2,
            eps=eps,
            weight_decay=weight_decay,
            mask=_decayed,
        ),
    )


OPTIMIZERS = {"adamw": adamw}


def _decayed(params):
    """True for matrices: norms and biases (stacked: rank 2) are not decayed."""
    matrices = ("kernel", "embedding", "lora_a", "lora_b")
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: getattr(path[-1], "key", "") in matrices, params
    )
