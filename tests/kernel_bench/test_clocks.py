"""Clocks and power while kernels are measured: what Linux tells of a processor, and how it is printed."""

import pytest

from gpucomp.kernel_bench import clocks


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_processor_tells_its_clock_and_its_power(tmp_path, monkeypatch):
    for number, kilohertz in enumerate((2_000_000, 3_500_000)):
        write(tmp_path / "cpu" / f"cpu{number}" / "cpufreq" / "scaling_cur_freq", f"{kilohertz}\n")
    write(tmp_path / "cpu" / "cpuidle" / "cpufreq" / "scaling_cur_freq", "1\n")
    meters = [tmp_path / "power" / f"intel-rapl:{k}" / "energy_uj" for k in range(2)]
    now = iter((10.0, 12.0, 13.0))
    monkeypatch.setattr(clocks.time, "monotonic", lambda: next(now))
    ask = clocks.processor(tmp_path / "cpu", tmp_path / "power")
    found = []
    for energies in ((1e6, 5e6), (41e6, 7e6), (0, 0)):
        for meter, energy in zip(meters, energies, strict=True):
            write(meter, str(int(energy)))
        ask = ask if found else clocks.processor(tmp_path / "cpu", tmp_path / "power")
        found.append(ask())

    assert found == [{"mhz": 2750.0}, {"mhz": 2750.0, "watts": pytest.approx(21.0)}, {"mhz": 2750.0}]


def test_a_system_that_tells_nothing(tmp_path):
    assert clocks.processor(tmp_path, tmp_path)() == {}
    assert clocks.told([{}, {}]) == "Clocks and power: nothing here reports them"


def test_ranges_and_reasons_are_told():
    states = [
        {"sm_mhz": 1410, "watts": 80.5, "held_by": [], "noted": []},
        {"sm_mhz": 1200, "watts": 80.5, "held_by": ["hardware thermal"], "noted": ["power cap"]},
        {},
        {"sm_mhz": 1300, "watts": 80.5, "held_by": [], "noted": ["power cap"]},
    ]

    assert clocks.told(states).endswith(
        ": sm_mhz 1200 to 1410, watts 80.5, hardware thermal in 1 of 3 rounds, power cap in 2 of 3 rounds"
    )
