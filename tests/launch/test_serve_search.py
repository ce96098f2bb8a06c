import json
import os
import pathlib
import subprocess
import sys
import urllib.request

import pytest


@pytest.mark.slow
def test_a_passage_file_is_served_until_the_server_is_told_to_stop(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"id": 1, "title": "Rome", "text": "A city."}))
    server = subprocess.Popen(
        [sys.executable, "-m", "launch.serve_search", "--port=0", f"--passages={path}"],
        cwd=pathlib.Path(__file__).parents[2],
        env=os.environ | {"JAX_PLATFORMS": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        url = server.stdout.readline().split()[-1]
        body = json.dumps({"queries": ["city"], "return_scores": True}).encode()
        with urllib.request.urlopen(f"{url}/retrieve", body, timeout=60) as answer:
            (hit,) = json.load(answer)["result"][0]
        assert hit["document"]["title"] == "Rome"
        with urllib.request.urlopen(f"{url}/health", timeout=60) as answer:
            assert json.load(answer) == {"passages": 1}
    finally:
        server.terminate()
        server.stdout.close()
        assert server.wait(timeout=60) == 0
