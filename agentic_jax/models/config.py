"""What a decoder looks like, and its Hugging Face spelling."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

FAMILIES = {  # Hugging Face's name of the class -> ours, which is its model_type.
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
}
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the length of pretraining.

    Attributes:
        kind: "linear" divides every frequency by factor; "llama3" only the slow ones,
            with a linear ramp between; "yarn" (arXiv:2309.00071) ramps over dimensions
            and multiplies queries and keys by attention_factor.
        factor: how many times longer, at least 1.
        original_max_positions: tokens that pretraining saw; unused by "linear".
        low_freq_factor: llama3; original_max_positions over it is the longest
            wavelength, in tokens, that is not divided by the whole factor.
        high_freq_factor: llama3; shorter wavelengths than original_max_positions over
            it are kept.
        beta_fast: yarn; rotations in original_max_positions above which a dimension is
            kept.
        beta_slow: yarn; rotations below which it is divided by factor.
        attention_factor: yarn; scale of cosines and sines.
        truncate: yarn; rounds the ends of the ramp outwards to whole dimensions.
    """

    kind: Literal["linear", "llama3", "yarn"]
    factor: float
    original_max_positions: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0
    truncate: bool = True


@dataclass(frozen=True)
class LoraConfig:
    """Which projections get a low-rank adapter, named as PEFT names it.

        y = x W + (alpha / rank) (x A) B

    Attributes:
        rank: PEFT's r, the inner width of A and B.
        alpha: PEFT's lora_alpha.
        targets: PEFT's target_modules, of q_proj, k_proj, v_proj, o_proj, gate_proj,
            up_proj and down_proj; in every layer.

    Raises:
        ValueError: a rank below 1, no target, or an unknown one.

    Source: LoRA (arXiv:2106.09685), section 4.1.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]

    def __post_init__(self):  # noqa: D105
        if self.rank < 1:
            raise ValueError(f"lora rank is {self.rank}; at least 1 is needed")
        known = _ATTENTION + _MLP
        unknown = [target for target in self.targets if target not in known]
        if unknown or not self.targets:
            raise ValueError(
                f"lora targets are {list(self.targets)}; name some of "
                f"{', '.join(known)}"
            )

    @property
    def scale(self) -> float:
        """What the adapter's product is multiplied by."""
        return self.alpha / self.rank


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder, and how to run it. Hashable, so static under jit.

    Attributes:
        family: which Hugging Face class it is written back as.
        width: of the residual stream, D.
        num_kv_heads: divides num_heads; equal is multi-head, 1 is multi-query.
        head_dim: even; num_heads * head_dim need not be the width.
        mlp_width: of the gated hidden layer, of each expert's where there are experts.
        num_experts: gated blocks in each layer, of which every token is sent to
            experts_per_token; 0 is one dense block.
        experts_per_token: how many experts see a token.
        normalize_experts: divides the probabilities of a token's experts by their sum.
        attention_bias: biases on the query, key and value projections, and on the
            output projection too unless the family is qwen2.
        qk_norm: RMS norm of each query and key head before the rotation.
        max_positions: the longest context; checked by callers, not by the model.
        bos_token_id: only passed through to the Hugging Face config.
        eos_token_ids: likewise.
        pad_token_id: likewise.
        dtype: of matrix products; softmax and norms are in float32 at least.
        param_dtype: of the parameters.
        layer_loop: "scan" compiles one layer, "unroll" all, of the same parameters.
        remat: what the backward pass recomputes: "none" keeps all activations, "dots"
            keeps the results of products with weights, "full" keeps each layer's input.
        attention: over whole rows: "dense" holds all weights at one time, "chunked"
            those of a few queries, "splash" is a TPU kernel and "cudnn" a GPU one; see
            attention_kernels.
        lora: adapters beside the weights, part of the parameters; None is without.

    Raises:
        ValueError: an unknown name, head counts that do not divide, experts that do
            not fit the family, or adapters on experts.
    """

    family: Literal["llama", "qwen2", "qwen3", "qwen3_moe"]
    vocab_size: int
    width: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_width: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    rms_norm_eps: float = 1e-6
    tie_embeddings: bool = False
    attention_bias: bool = False
    qk_norm: bool = False
    max_positions: int = 32_768
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    pad_token_id: int | None = None
    dtype: str = "float32"
    param_dtype: str = "float32"
    layer_loop: Literal["scan", "unroll"] = "unroll"
    remat: Literal["none", "full", "dots"] = "none"
    attention: Literal["dense", "chunked", "splash", "cudnn"] = "dense"
    num_experts: int = 0
    experts_per_token: int = 0
    normalize_experts: bool = True
    lora: LoraConfig | None = None

    def __post_init__(self):  # noqa: D105
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads {self.num_heads} is no multiple of num_kv_heads "
                f"{self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} is odd; rotation needs pairs")
        for name, known in (
            ("family", tuple(FAMILIES.values())),
            ("layer_loop", ("scan", "unroll")),
            ("remat", ("none", "full", "dots")),
            ("attention", ("dense", "chunked", "splash", "cudnn")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} is one of {', '.join(known)}, not {getattr(self, name)!r}"
                )
        self._check_experts()

    def _check_experts(self):
        if (self.num_experts > 0) != (self.family == "qwen3_moe"):
            raise ValueError(
                f"num_experts is {self.num_experts} in a {self.family}; only qwen3_moe "
                "has experts, and needs them"
            )
        if not 0 <= self.experts_per_token <= self.num_experts or (
            self.num_experts and not self.experts_per_token
        ):
            raise ValueError(
                f"experts_per_token is {self.experts_per_token} of num_experts "
                f"{self.num_experts}"
            )
        if self.num_experts and self.lora and set(self.lora.targets) & set(_MLP):
            raise ValueError(
                f"lora targets are {list(self.lora.targets)}; beside experts only "
                f"{', '.join(_ATTENTION)} can be adapted"
            )

    @property
    def output_bias(self) -> bool:
        """Whether the attention's output projection has a bias."""
        return self.attention_bias and self.family != "qwen2"


def from_hf(
    hf: Mapping[str, Any],
    *,
    dtype: str = "float32",
    param_dtype: str = "float32",
    layer_loop: str = "unroll",
    remat: str = "none",
) -> ModelConfig:
    """The model that a Hugging Face config.json describes.

    Args:
        hf: the parsed file; rope settings are read under `rope_parameters`
            (transformers 5) or `rope_theta` and `rope_scaling` (before).
        dtype, param_dtype, layer_loop, remat: how to run it; see ModelConfig.

    Raises:
        ValueError: an architecture, activation, bias, window or rope kind that is not
            supported, or a missing key; the message says which are.
    """
    name = (hf.get("architectures") or ["none"])[0]
    if name not in FAMILIES:
        raise ValueError(
            f"unsupported architecture {name!r}; supported: {', '.join(FAMILIES)}"
        )
    for key, wanted in (
        ("hidden_act", "silu"),
        ("mlp_bias", False),
        ("use_sliding_window", False),
        ("decoder_sparse_step", 1),
        ("mlp_only_layers", []),
    ):
        if hf.get(key) not in (None, wanted):
            raise ValueError(f"unsupported {key} {hf[key]!r}; only {wanted!r} is")
    family = FAMILIES[name]
    has_experts = family == "qwen3_moe"
    try:
        num_heads = hf["num_attention_heads"]
        theta, scaling = _read_rope(hf)
        return ModelConfig(
            family=family,
            vocab_size=hf["vocab_size"],
            width=hf["hidden_size"],
            num_layers=hf["num_hidden_layers"],
            num_heads=num_heads,
            num_kv_heads=hf.get("num_key_value_heads") or num_heads,
            head_dim=hf.get("head_dim") or hf["hidden_size"] // num_heads,
            mlp_width=hf[
                "moe_intermediate_size" if has_experts else "intermediate_size"
            ],
            num_experts=_num_experts(hf) if has_experts else 0,
            experts_per_token=hf["num_experts_per_tok"] if has_experts else 0,
            normalize_experts=hf["norm_topk_prob"] if has_experts else True,
            rope_theta=theta,
            rope_scaling=scaling,
            rms_norm_eps=hf["rms_norm_eps"],
            tie_embeddings=hf.get("tie_word_embeddings", False),
            attention_bias=family == "qwen2" or hf.get("attention_bias", False),
            qk_norm=family in ("qwen3", "qwen3_moe"),
            max_positions=hf["max_position_embeddings"],
            bos_token_id=hf.get("bos_token_id"),
            eos_token_ids=_as_tuple(hf.get("eos_token_id")),
            pad_token_id=hf.get("pad_token_id"),
            dtype=dtype,
            param_dtype=param_dtype,
            layer_loop=layer_loop,
            remat=remat,
        )
    except KeyError as error:
        raise ValueError(f"config.json lacks {error} for a {name}") from error


def to_hf(config: ModelConfig) -> dict[str, Any]:
    """The config.json that transformers 4 and 5 and SGLang read as this model.

    Both spellings of the rope settings are written. How to run the model is not.
    """
    eos = list(config.eos_token_ids)
    scaling = _write_rope_scaling(config.rope_scaling)
    hf = {
        "architectures": [n for n, f in FAMILIES.items() if f == config.family],
        "model_type": config.family,
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.mlp_width,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "max_position_embeddings": config.max_positions,
        "rope_theta": config.rope_theta,
        "rope_scaling": scaling,
        "rope_parameters": {
            "rope_theta": config.rope_theta,
            **(scaling or {"rope_type": "default"}),
        },
        "bos_token_id": config.bos_token_id,
        "eos_token_id": eos[0] if len(eos) == 1 else eos or None,
        "pad_token_id": config.pad_token_id,
        "dtype": config.param_dtype,
        "torch_dtype": config.param_dtype,
    }
    if config.family != "qwen2":
        hf["attention_bias"] = config.attention_bias
    if config.family == "llama":
        hf["mlp_bias"] = False
    else:
        hf["use_sliding_window"] = False
    if config.num_experts:
        hf |= {
            "num_experts": config.num_experts,
            "num_experts_per_tok": config.experts_per_token,
            "moe_intermediate_size": config.mlp_width,
            "norm_topk_prob": config.normalize_experts,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    return hf


_ROPE_KEYS = {  # Ours -> Hugging Face's, by kind.
    "linear": {},
    "llama3": {
        "original_max_positions": "original_max_position_embeddings",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
    },
    "yarn": {
        "original_max_positions": "original_max_position_embeddings",
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
        "attention_factor": "attention_factor",
        "truncate": "truncate",
    },
}


def _read_rope(hf: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    rope = {"rope_theta": hf.get("rope_theta"), **(hf.get("rope_scaling") or {})}
    rope.update(hf.get("rope_parameters") or {})
    theta = (
        rope["rope_theta"] or 10_000.0
    )  # What transformers takes when none is given.
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind not in _ROPE_KEYS:
        raise ValueError(
            f"unsupported rope scaling {kind!r}; supported: default, "
            f"{', '.join(_ROPE_KEYS)}"
        )
    rope.setdefault("original_max_position_embeddings", hf["max_position_embeddings"])
    options = {
        ours: rope[theirs]
        for ours, theirs in _ROPE_KEYS[kind].items()
        if rope.get(theirs) is not None
    }
    if kind == "yarn" and "attention_factor" not in options:
        if rope.get("mscale") or rope.get("mscale_all_dim"):
            raise ValueError("unsupported rope option mscale; give attention_factor")
        options["attention_factor"] = 0.1 * math.log(max(rope["factor"], 1.0)) + 1.0
    return theta, RopeScaling(kind=kind, factor=float(rope["factor"]), **options)


def _write_rope_scaling(scaling: RopeScaling | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    options = dataclasses.asdict(scaling)
    return {
        "rope_type": scaling.kind,
        "factor": scaling.factor,
        **{theirs: options[ours] for ours, theirs in _ROPE_KEYS[scaling.kind].items()},
    }


def _num_experts(hf: Mapping[str, Any]) -> int:
    """Published configs say num_experts, transformers 5 writes num_local_experts."""
    return hf["num_local_experts" if "num_local_experts" in hf else "num_experts"]


def _as_tuple(ids: int | list[int] | None) -> tuple[int, ...]:
    if ids is None:
        return ()
    return (ids,) if isinstance(ids, int) else tuple(ids)
