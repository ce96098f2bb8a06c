"""Installs agentic_jax; `pip install -e .` for work on it."""

from setuptools import find_packages, setup

DATA = ["datasets>=4", "reasoning-gym>=0.1.19"]
PLAN = ["libtpu>=0.0.50"]  # The compiler; no TPU is needed.
DOCS = ["sphinx>=9", "myst-parser>=5", "furo>=2025.12"]
SLOW = ["torch>=2.9", "peft>=0.18", *DATA, *DOCS]
TEST = [
    *PLAN,
    "pytest>=8.4",
    "pytest-xdist>=3.6",
    "ruff>=0.14",
    "nbclient>=0.10",
    "ipykernel>=6.29",
    "pandas>=2.2",
    "selenium>=4.30",
]

setup(
    name="agentic_jax",
    version="0.1.0",
    description="Reinforcement learning of tool-using language models in JAX.",
    packages=find_packages(include=["agentic_jax*", "configs*", "launch*"]),
    package_data={"agentic_jax.report": ["page/*"]},
    python_requires=">=3.11,<3.14",
    install_requires=[
        "absl-py>=2.1",
        "aiohttp>=3.10",
        "bm25s>=0.2",
        "flax>=0.12",
        "gguf>=0.17",
        "jax>=0.10",
        "jinja2>=3.1",
        "math-verify>=0.9",
        "matplotlib>=3.9",
        "ml-collections>=1.1",
        "numpy>=2.1",
        "optax>=0.2.5",
        "orbax-checkpoint>=0.11",
        "pyarrow>=17",
        "rich>=13",
        "safetensors>=0.5",
        "scipy>=1.14",
        "tensorboard>=2.18",
        "tokenizers>=0.21",
        "transformers>=4.57",
    ],
    extras_require={
        "sglang": ["sglang>=0.5"],
        "cuda": ["jax[cuda13]>=0.10"],
        "tpu": ["jax[tpu]>=0.10"],
        "data": DATA,
        "plan": PLAN,
        "docs": DOCS,
        "test": TEST,
        "slow": TEST + SLOW,
    },
)
