"""Log-probability and entropy under a projection to the vocabulary, block by block.

The vocabulary is cut into blocks of words. The first pass keeps running sums over the
blocks; the second makes each block's logits again and its gradients by hand. Neither
holds more than one block of logits, and a block of the kernel's gradient is finished,
summed over devices too, before the next one is begun.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

LANES = 128  # Blocks of at least this many words are multiples of it.


@dataclass(frozen=True)
class Cut:
    """How the work is cut up; hashable, since nothing of it is differentiated.

    Attributes:
        temperature: logits are divided by it.
        num_blocks: of the vocabulary, and of each device's part of it.
        row_axes: mesh axes of the B rows, of the T tokens.
        word_axes: mesh axes of the V words.
        width_axes: mesh axes of the kernel's width D, each of them a row axis: they
            are gathered a block at a time. States always have their whole width.
    """

    temperature: float
    num_blocks: int
    row_axes: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    word_axes: tuple[str, ...] = ()
    width_axes: tuple[str, ...] = ()

    @property
    def summed_axes(self) -> tuple[str, ...]:
        """Mesh axes over which a kernel's gradient is summed and stays whole."""
        return tuple(a for a in sum(self.row_axes, ()) if a not in self.width_axes)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def project(
    states: jax.Array, kernel: jax.Array, targets: jax.Array, cut: Cut
) -> tuple[jax.Array, jax.Array]:
    """log p(target) and entropy of p = softmax(states @ kernel.T / temperature).

        d logprob / d logits = onehot(target) - p
        d entropy / d logits = -p (log p + entropy)

    Args:
        states: [B, T, D], any float dtype; the products are taken in it.
        kernel: [V, D], any float dtype; its gradient is summed over tokens in at least
            float32 and then has this dtype.
        targets: [B, T] int32 words.
        cut: blocks, and mesh axes that mean those of jax.set_mesh. Without axes all
            placement is left to the compiler.

    Returns:
        [B, T] log-probabilities and [B, T] entropies in nats, float32 at least.
    """
    return _project(states, kernel, targets, cut)[0]


def _project(states, kernel, targets, cut):
    first = _on_mesh(partial(_first_pass, cut=cut), cut, "skt", "tttt")
    logprobs, entropy, top, total = first(states, kernel, targets)
    saved = (states, kernel, targets, entropy, top, total)
    return (logprobs, entropy), saved


def _project_back(cut, saved, cotangents):
    second = _on_mesh(partial(_second_pass, cut=cut), cut, "sktttttt", "sk")
    return (*second(*saved, *cotangents), None)


project.defvjp(_project, _project_back)


def _first_pass(states, kernel, targets, *, cut):
    """Log-probability and entropy of one device's tokens, and their logits' top and
    sum of exp(logit - top), which give p more exactly than a logsumexp would."""
    dtype = jnp.promote_types(states.dtype, jnp.float32)

    def add(start: jax.Array, size: int, sums: tuple) -> tuple:
        """Sums of exp(l - top) and (l - top) exp(l - top) under the new top."""
        top, total, weighted, picked = sums
        logits, _, is_target = _block(states, kernel, targets, start, size, cut)
        new_top = jnp.maximum(top, logits.max(-1))
        shifted = logits - new_top[..., None]
        weights = jnp.exp(shifted)
        total, weighted = _raised(top, new_top, total, weighted)
        total += weights.sum(-1)
        weighted += (weights * shifted).sum(-1)
        picked += jnp.sum(logits, axis=-1, where=is_target)
        return new_top, total, weighted, picked

    zeros = jnp.zeros(targets.shape, dtype)
    lowest = jnp.full(targets.shape, jnp.finfo(dtype).min / 2)
    sums = _over_blocks(add, (lowest, zeros, zeros, zeros), kernel.shape[0], cut)
    top, total, weighted, picked = sums
    if cut.word_axes:
        all_top = jax.lax.pmax(top, cut.word_axes)
        total, weighted = _raised(top, all_top, total, weighted)
        top = all_top
        total, weighted, picked = jax.lax.psum((total, weighted, picked), cut.word_axes)
    log_total = jnp.log(total)
    logprobs = (picked - top) - log_total
    return logprobs, log_total - weighted / total, top, total


def _raised(top, new_top, total, weighted):
    """The two sums, taken relative to `top` before and to `new_top` now."""
    scale = jnp.exp(top - new_top)
    return scale * total, scale * (weighted + (top - new_top) * total)


def _second_pass(
    states, kernel, targets, entropy, top, total, d_logprobs, d_entropy, *, cut
):
    """Gradients of one device's states, and of its part of the kernel."""
    dtype = entropy.dtype
    per_token = (entropy, top, total, d_logprobs, d_entropy)
    entropy, top, total, d_logprobs, d_entropy = (x[..., None] for x in per_token)

    def add(start: jax.Array, size: int, gradients: tuple) -> tuple:
        d_states, d_kernel = gradients
        logits, block, is_target = _block(states, kernel, targets, start, size, cut)
        shifted = logits - top
        log_p = shifted - jnp.log(total)
        p = jnp.exp(shifted) / total
        d_logits = -p * (d_logprobs + d_entropy * (log_p + entropy))
        d_logits += jnp.where(is_target, d_logprobs, 0.0)
        d_logits = (d_logits / cut.temperature).astype(states.dtype)
        product = partial(jnp.einsum, preferred_element_type=dtype)
        d_states += product("btv,vd->btd", d_logits, block)
        d_block = _summed(product("btv,btd->vd", d_logits, states), cut)
        return d_states, jax.lax.dynamic_update_slice_in_dim(
            d_kernel, d_block.astype(kernel.dtype), start, axis=0
        )

    zeros = (jnp.zeros(states.shape, dtype), jnp.zeros_like(kernel))
    d_states, d_kernel = _over_blocks(add, zeros, kernel.shape[0], cut)
    if cut.word_axes:
        d_states = jax.lax.psum(d_states, cut.word_axes)
    return d_states.astype(states.dtype), d_kernel


def _block(states, kernel, targets, start, size, cut):
    """Logits [B, T, size], the kernel's block [size, D], and where the target is."""
    block = jax.lax.dynamic_slice_in_dim(kernel, start, size).astype(states.dtype)
    if cut.width_axes:
        block = jax.lax.all_gather(block, cut.width_axes, axis=1, tiled=True)
    dtype = jnp.promote_types(states.dtype, jnp.float32)
    logits = jnp.einsum("btd,vd->btv", states, block, preferred_element_type=dtype)
    words = start + jnp.arange(size)
    if cut.word_axes:
        words += jax.lax.axis_index(cut.word_axes) * kernel.shape[0]
    # A comparison and not a gather: the target may be another device's word.
    is_target = words[None, None, :] == targets[..., None]
    return logits / cut.temperature, block, is_target


def _summed(d_block: jax.Array, cut: Cut) -> jax.Array:
    """A block of the kernel's gradient, summed over the devices that hold tokens."""
    if cut.width_axes:
        d_block = jax.lax.psum_scatter(
            d_block, cut.width_axes, scatter_dimension=1, tiled=True
        )
    return jax.lax.psum(d_block, cut.summed_axes) if cut.summed_axes else d_block


def _over_blocks(add: Callable, carry: Any, num_words: int, cut: Cut) -> Any:
    """The carry after add(start, size, carry) for every block; the last is shorter."""
    size = -(-num_words // cut.num_blocks)
    if size > LANES:
        size = -(-size // LANES) * LANES
    whole = num_words // size
    carry = jax.lax.fori_loop(0, whole, lambda i, c: add(i * size, size, c), carry)
    rest = num_words - whole * size
    return add(jnp.int32(whole * size), rest, carry) if rest else carry


def _on_mesh(function: Callable, cut: Cut, inputs: str, outputs: str) -> Callable:
    """The function run by each device on its part of states, kernel and [B, T]."""
    rows, tokens = cut.row_axes
    specs = {
        "s": P(rows, tokens, None),
        "k": P(cut.word_axes, cut.width_axes),
        "t": P(rows, tokens),
    }
    if not any(rows + tokens + cut.word_axes):
        return function
    return jax.shard_map(
        function,
        in_specs=tuple(specs[x] for x in inputs),
        out_specs=tuple(specs[x] for x in outputs),
        check_vma=False,
    )
