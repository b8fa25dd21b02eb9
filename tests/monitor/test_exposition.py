"""The text of samples: names, labels and units of ours and of dcgm-exporter's, and gaps where nothing is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from muster.monitor import families
from muster.monitor.exposition import dcgm_text, device_text, fault_text, node_text, show_device, show_node
from sample_kit import MODEL, device, node

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)


def read(pieces: list[bytes]) -> dict[str, list[tuple[dict[str, str], float]]]:
    found = text_string_to_metric_families(b"".join(pieces).decode())
    return {one.samples[0].name: [(sample.labels, sample.value) for sample in one.samples] for one in found}


def test_a_device_in_our_names_and_in_those_of_dcgm_exporter() -> None:
    shown = [show_device("n1", "h100", device(3))]
    own, dcgm = read(list(device_text(shown))), read(list(dcgm_text(shown)))
    assert set(own) == {family.name for family in families.DEVICE}
    mine = {"node": "n1", "pool": "h100", "gpu": "3", "uuid": "GPU-3", "model": MODEL}
    assert own["muster_device_utilization_ratio"] == [(mine, 0.5)]
    assert own["muster_device_clock_hertz"][0][1] == 1.98e9
    assert set(dcgm) == {family.name for family in families.DCGM}
    labels = {"gpu": "3", "UUID": "GPU-3", "device": "nvidia3", "modelName": MODEL, "Hostname": "n1"}
    assert dcgm == {
        name: [(labels, value)]
        for name, value in (
            ("DCGM_FI_DEV_GPU_UTIL", 50),
            ("DCGM_FI_DEV_FB_USED", 3072),
            ("DCGM_FI_DEV_FB_FREE", 77 * 1024),
            ("DCGM_FI_DEV_POWER_USAGE", 312.5),
            ("DCGM_FI_DEV_GPU_TEMP", 41),
            ("DCGM_FI_DEV_SM_CLOCK", 1980),
        )
    }


def test_a_slice_has_its_profile_and_what_it_does_not_know_is_not_there() -> None:
    slice_ = device(0, None, profile="1g.10gb", instance=7, power=None, temperature=None, clock=None, memory=None)
    shown = [show_device("n1", "", slice_)]
    own, dcgm = read(list(device_text(shown))), read(list(dcgm_text(shown)))
    assert list(own) == ["muster_device_memory_used_bytes"]
    assert own["muster_device_memory_used_bytes"][0][0]["mig"] == "7"
    assert list(dcgm) == ["DCGM_FI_DEV_FB_USED"]
    labels = dcgm["DCGM_FI_DEV_FB_USED"][0][0]
    assert (labels["GPU_I_PROFILE"], labels["GPU_I_ID"]) == ("1g.10gb", "7")


@given(NAMES, NAMES)
def test_any_name_comes_back_as_it_was(name: str, model: str) -> None:
    shown = [show_device(name, "p", device(0, name=model))]
    ((labels, _),) = read(list(device_text(shown)))["muster_device_power_watts"]
    assert (labels["node"], labels["model"]) == (name, model)


def test_the_figures_of_machines_and_the_faults() -> None:
    found = read(list(node_text([show_node("n1", "cpu", node()), show_node("n2", "cpu", node(cpu=None))])))
    assert set(found) == {family.name for family in families.MACHINE}
    assert found["muster_node_cpu_busy_seconds_total"] == [({"node": "n1", "pool": "cpu"}, 1234.5)]
    assert len(found["muster_node_memory_bytes"]) == 2
    faults = read([fault_text({("n1", "3", "79"): 2})])
    assert faults == {"muster_device_faults_total": [({"node": "n1", "gpu": "3", "code": "79"}, 2.0)]}
    assert fault_text({}) == b"", "no line, no metric"
