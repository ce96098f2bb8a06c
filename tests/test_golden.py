"""The golden command itself, and the public vectors where they lie beside the repo."""

import json
import pathlib

import pytest

from tests.golden.__main__ import main

PUBLIC = pathlib.Path(__file__).resolve().parents[2] / "shared" / "golden"
META = {"rtol": 1e-7, "atol": 1e-12}


def write(folder, stem, cases):
    content = json.dumps({"meta": META, "cases": cases})
    (folder / f"{stem}.json").write_text(content)


def kl_case(value, **outputs):
    return {
        "name": "k1",
        "inputs": {"logprob": [[-1.0]], "ref_logprob": [[-2.0]]},
        "params": {"kind": "k1"},
        "outputs": {"kl": [[value]], **outputs},
    }


def test_right_values_pass(tmp_path, capsys):
    write(tmp_path, "kl", [kl_case(1.0)])
    assert main([str(tmp_path)]) == 0
    assert "kl                             1     0" in capsys.readouterr().out


@pytest.mark.parametrize(
    "stem, case",
    [
        ("kl", kl_case(1.1)),
        ("kl", kl_case("nan")),
        ("kl", kl_case(1.0, new_output=[[1.0]])),
        ("unheard_of", kl_case(1.0)),
    ],
)
def test_wrong_and_unknown_values_fail(tmp_path, stem, case):
    write(tmp_path, stem, [case])
    assert main([str(tmp_path)]) == 1


def test_an_empty_or_missing_folder_fails(tmp_path):
    assert main([str(tmp_path)]) == 1
    assert main([str(tmp_path / "none")]) == 2


@pytest.mark.slow  # Half a minute of compilation; the command is the usual way.
@pytest.mark.skipif(
    not PUBLIC.is_dir(), reason="golden vectors are not beside the repo"
)
def test_public_vectors_pass():
    assert main([str(PUBLIC)]) == 0
