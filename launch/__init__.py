"""Entry points, run as python -m launch.NAME."""

import os

# transformers would otherwise start by saying that it found no PyTorch: none is needed.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
