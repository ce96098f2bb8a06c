"""The two ways to a sandbox: in this process, or behind HTTP services."""

from agentic_jax.sandbox.execution import Execution, Limits, SandboxError
from agentic_jax.sandbox.supervisor import Sandbox

__all__ = ["Execution", "Limits", "Sandbox", "SandboxError"]
