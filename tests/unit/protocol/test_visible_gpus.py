"""CUDA_VISIBLE_DEVICES by index, UUID and MIG id; what a power reading means, by chip."""

import pytest

from harness.protocol.power_sensors import BY_CAPABILITY, sensor_of
from harness.protocol.visible import Device, Instance, visible

INSTANCES = (
    Instance(uuid="MIG-11111111-aaaa", gpu_instance=7, compute_instance=0),
    Instance(uuid="MIG-22222222-bbbb", gpu_instance=8, compute_instance=0),
)
DEVICES = [
    Device(uuid="GPU-aaaaaaaa-0000", name="H100"),
    Device(uuid="GPU-aaaabbbb-0001", name="H100"),
    Device(uuid="GPU-cccccccc-0002", name="H100", mig=INSTANCES),
]
WHOLE = [Device(uuid=device.uuid, name=device.name) for device in DEVICES]
A, B, C = (device.uuid for device in DEVICES)


def seen(text: str | None, devices: list[Device] = DEVICES) -> list[tuple[str, str | None]]:
    return list(visible(devices, {} if text is None else {"CUDA_VISIBLE_DEVICES": text}).gpus)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, [A, B, C]),
        ("", []),
        ("2,0", [C, A]),  # CUDA's index 0 is then NVML's index 2
        (" 1 , 2 ", [B, C]),
        ("GPU-cccccccc-0002,GPU-aaaaaaaa-0000", [C, A]),
        ("GPU-c", [C]),  # the head of a UUID
        ("GPU-aaaa", []),  # of two: names neither
        ("0,GPU-aaaabbbb", [A, B]),
        ("0,7,1", [A]),  # CUDA stops at what names nothing
        ("-1", []),
        ("0,-1,1", [A]),
        ("NoDevFiles", []),
        ("0,0", []),  # named twice: the driver then shows none
    ],
)
def test_whole_gpus(text, expected):
    assert seen(text, WHOLE) == [(uuid, None) for uuid in expected]


@pytest.mark.parametrize("text", [None, "0,1,2", "2", C, "2,MIG-22222222-bbbb"])
def test_a_gpu_that_is_cut_is_its_first_instance_and_leaves_no_whole_gpu(text):
    assert seen(text) == [(C, "MIG-11111111-aaaa")]


@pytest.mark.parametrize(("text", "expected"), [(None, [A]), ("0,1", [A]), ("1", []), (B, [])])
def test_a_gpu_with_mig_on_and_no_instance_is_none(text, expected):
    cut = [WHOLE[0], Device(uuid=B, name="H100", mig_mode=True)]
    assert seen(text, cut) == [(uuid, None) for uuid in expected]


@pytest.mark.parametrize(
    "text", ["MIG-22222222-bbbb", "MIG-2222", f"MIG-{C}/8/0", "MIG-22222222-bbbb,MIG-11111111-aaaa", "0,MIG-2222"]
)
def test_a_mig_instance_by_its_uuid_and_by_the_older_form(text):
    # a program sees one instance at most, and no whole GPU beside it
    assert seen(text) == [(C, "MIG-22222222-bbbb")]


@pytest.mark.parametrize("text", ["MIG-3333", f"MIG-{C}/9/0", "MIG-GPU-0/x", "MIG-"])
def test_a_mig_id_that_names_no_instance_or_several_names_nothing(text):
    assert seen(text) == []


def test_what_cuda_does_not_reach_is_named():
    assert visible(DEVICES, {"CUDA_VISIBLE_DEVICES": "0,9,1"}).ignored == ("9", "1")


def test_an_index_among_unlike_gpus_is_doubtful_unless_the_order_is_the_buss():
    mixed = [Device(uuid=A, name="H100"), Device(uuid=B, name="L4")]
    by_index = {"CUDA_VISIBLE_DEVICES": "1"}
    assert "PCI_BUS_ID" in str(visible(mixed, by_index).doubt)
    assert visible(mixed, {**by_index, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}).doubt is None
    assert visible(mixed, {"CUDA_VISIBLE_DEVICES": B}).doubt is None
    assert visible(DEVICES, by_index).doubt is None


@pytest.mark.parametrize(
    ("capability", "name", "chip", "window_s", "covered"),
    [
        ("9.0", "NVIDIA H200", "GH100", 1.0, 0.25),
        (None, "NVIDIA H100 80GB HBM3", "GH100", 1.0, 0.25),
        (None, "NVIDIA A100-SXM4-80GB", "GA100", 0.0, 0.25),
        ("8.0", "", "GA100", 0.0, 0.25),
        ("8.6", "NVIDIA A40", "Ampere but GA100", 1.0, None),
        ("8.9", "NVIDIA L40S", "Ada", 1.0, None),
        ("7.0", "Tesla V100-SXM2-32GB", "Volta", 0.0, None),
        ("10.3", "NVIDIA B300", "Blackwell", 1.0, None),
    ],
)
def test_what_a_power_reading_means(capability, name, chip, window_s, covered):
    sensor = sensor_of(capability, name)
    assert sensor is not None
    assert (sensor.chip, sensor.plain_window_s, sensor.covered_ratio) == (chip, window_s, covered)
    assert sensor.part_time == (covered is not None)
    assert "NVML" in sensor.words
    assert ("Yang" in sensor.words) == (covered is not None)


@pytest.mark.parametrize(("capability", "name"), [(None, ""), ("x", "no such board"), ("3.5", ""), ("99.0", "")])
def test_an_unknown_chip_has_no_sensor(capability, name):
    assert sensor_of(capability, name) is None


def test_a_share_is_told_only_of_boards_that_were_studied():
    assert all((sensor.covered_ratio is None) == (not sensor.studied) for sensor in BY_CAPABILITY.values())
