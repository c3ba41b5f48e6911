"""The records that come with the package are used. These tests fail if an engine changes and its records do not."""

from __future__ import annotations

import pytest

from gpucomp.codegen.llvm.engines import ENGINES
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.refusal import Refusal
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.schedule.records import read, shipped

CPU = {family.title: family for engines in ENGINES.values() for family in engines}
FILES = sorted(shipped().glob("*.jsonl"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_pick_is_of_an_engine_as_it_is_today(path):
    found = [record for _, record in read(path)]
    behind = []
    for record in found:
        assert not isinstance(record, Refusal), record
        family = (CPU if record["device"]["kind"] == "cpu" else FAMILIES).get(record["engine"])
        if record["kind"] == "pick" and (family is None or engine_hash(family) != record["template"]):
            behind.append(f"{record['engine']}: {record['label']}")

    assert len(found) >= 8
    assert behind == [], (
        f"these engines have changed since they were measured. Where they write the same text, "
        f"`gpucomp records refresh {path} MODEL.onnx ... --target TARGET` says so in the file; else tune again, or leave the "
        f"records out"
    )


def test_there_are_records_of_a_processor_and_of_an_opencl_device():
    assert [path.name for path in FILES] == ["cpu_rocketlake.jsonl", "opencl_pocl.jsonl"]
