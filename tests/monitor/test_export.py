import pytest

from agentic_jax.monitor.trace import write_trace
from tests.report.runs import Words, call_record, fault_row, trace_row, write_run

pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
from agentic_jax.monitor.export import export_parquet  # noqa: E402


def test_the_tables_hold_the_run_and_join(tmp_path):
    workdir = write_run(tmp_path / "rl", steps=2, trace_steps=(0,))
    words = Words()
    row = trace_row(words, code="\ud800", output="6\u2028")
    row["turns"][0]["calls"] += [call_record("1/0", "no", status="error")]
    row["turns"][0]["calls"][1]["call"]["arguments"] = None
    rows = [row, fault_row(words, group=1, sample=0)]
    write_trace(workdir, 1, rows, decode=words.decode)
    export_parquet(workdir, tmp_path / "out")
    metrics = pq.read_table(tmp_path / "out" / "metrics.parquet").to_pydict()
    assert metrics["step"] == [0, 1] and metrics["reward/mean"] == [0.0, 0.5]
    trajectories = pq.read_table(tmp_path / "out" / "trajectories.parquet").to_pylist()
    assert [(t["step"], t["group"], t["sample"]) for t in trajectories] == [
        *[(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)],
        *[(1, 0, 0), (1, 1, 0)],
    ]
    first, lost = trajectories[0], trajectories[-1]
    assert (first["response_tokens"], first["sampled_tokens"], first["calls"]) == (
        6,
        4,
        1,
    )
    assert "".join(first["token_texts"]) == first["text"]
    assert first["token_mask"] == [False] * 3 + [True] * 2 + [False] * 2 + [True] * 2
    assert first["weight_version_min"] == 4
    assert (lost["score"], lost["stop"], lost["token_ids"]) == (None, "fault", [])
    calls = pq.read_table(tmp_path / "out" / "calls.parquet").to_pylist()
    broken, unparsed = (c for c in calls if c["step"] == 1 and c["group"] == 0)
    assert (broken["code"], broken["output"], broken["turn"]) == ("?", "6\u2028", 1)
    assert (unparsed["code"], unparsed["status"], unparsed["call"]) == (
        None,
        "error",
        2,
    )


def test_a_directory_without_metrics_is_named(tmp_path):
    with pytest.raises(ValueError, match="has no metrics.jsonl with a step"):
        export_parquet(tmp_path, tmp_path / "out")
