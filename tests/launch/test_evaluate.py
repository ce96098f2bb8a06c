import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent.parent


def evaluate(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "launch.evaluate", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_two_result_files_are_compared_without_a_config(tmp_path):
    scores = {"before": [0.0, 0.0, 0.0, 1.0], "after": [1.0, 1.0, 1.0, 1.0]}
    paths = []
    for name, values in scores.items():
        paths.append(tmp_path / f"{name}.json")
        rows = {f"t{i}": [x] for i, x in enumerate(values)}
        paths[-1].write_text(json.dumps({"tools": {"scores": rows}}))
    done = evaluate(
        f"--compare={paths[0]},{paths[1]}",
        f"--out={tmp_path / 'out.json'}",
        f"--table={tmp_path / 'out.csv'}",
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())["tools"]
    # Three equal differences of one sign: 2 of 8 flips are as extreme.
    assert found["difference"] == 0.75 and 0.22 < found["p_value"] < 0.28
    table = (tmp_path / "out.csv").read_text().splitlines()
    assert table[1].startswith('tools,4,25.0,100.0,"+75.0 [')
    assert "difference +0.750" in done.stderr
