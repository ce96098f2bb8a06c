r"""How much a KL penalty towards the start costs or saves; k3, GRPO's estimator.

    python -m launch.sweep --config=configs/studies/kl.py --seeds=5 \
        --grid='kl_coef=0.0,0.01,0.3' --out=runs/studies/kl
"""

from ml_collections.config_dict import ConfigDict

from configs.studies import base


def get_config(variant: str = "k3") -> ConfigDict:
    """The base with a penalty of weight 0, or "tiny"."""
    return base.arm(variant, {"k3": {"kl": {"name": "k3"}}})
