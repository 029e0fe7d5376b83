"""slipstream.yaml: what it becomes, and a table of mistakes, each told with file, field, value and range."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.topology import ModelService, TlsFiles
from launcher.topology_file import ConfigError, describe, load_topology
from tests.wire.certificates import Authority

EXAMPLE = Path(__file__).parents[2] / "slipstream.example.yaml"
ONE = "verifiers: [{}]\n"


def write(folder: Path, text: str) -> Path:
    file = folder / "slipstream.yaml"
    file.write_text(text)
    return file


def problems(folder: Path, text: str) -> list[str]:
    file = write(folder, text)
    with pytest.raises(ValueError) as error:
        load_topology(file)
    lines = str(error.value).splitlines()
    assert all(line.startswith(f"{file}: ") for line in lines)
    return [line.removeprefix(f"{file}: ") for line in lines]


def test_the_example_is_good_and_names_every_field() -> None:
    topology = load_topology(EXAMPLE)
    assert (len(topology.verifiers), len(topology.drafters)) == (1, 1)
    text = EXAMPLE.read_text()
    described = describe(topology)
    for section in (described["verifiers"][0], described["drafters"][0], described["gateway"]):
        assert all(f"{field}: " in text for field in section)


def test_the_example_tells_the_true_defaults(tmp_path: Path) -> None:
    example = describe(load_topology(EXAMPLE))["verifiers"][0]
    default = describe(load_topology(write(tmp_path, ONE)))["verifiers"][0]
    named_otherwise = {"listen", "metrics"}
    assert {name: value for name, value in example.items() if name not in named_otherwise} == {
        name: value for name, value in default.items() if name not in named_otherwise
    }


def test_paths_start_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "tenants.yaml").write_text("tenants: [{name: all, anonymous: true}]")
    file = write(tmp_path, "verifiers: [{model: target}]\ngateway: {tenants: tenants.yaml}")
    topology = load_topology(file)
    assert topology.verifiers == (ModelService(model=tmp_path / "target"),)
    assert topology.gateway.tenants == tmp_path / "tenants.yaml"


def test_certificates_are_read_and_what_is_wrong_with_them_is_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    identity = authority.sign()
    section = f"tls: {{ca: {authority.file.name}, certificate: {identity.certificate.name}"
    good = load_topology(write(tmp_path, f"{ONE}{section}, key: {identity.key.name}}}"))
    assert good.tls == TlsFiles(ca=authority.file, certificate=identity.certificate, key=identity.key)
    (missing,) = problems(tmp_path, f"{ONE}{section}}}")
    assert missing == "tls.key is missing; it must be the path of something that exists"
    (nowhere,) = problems(tmp_path, f"{ONE}{section}, key: no.key}}")
    assert nowhere.startswith(f"tls.key is {tmp_path / 'no.key'}; it must be the path")
    (wrong,) = problems(tmp_path, f"{ONE}{section}, key: {authority.file.name}}}")
    assert "are no certificate and its key" in wrong


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must hold `verifiers:`, `drafters:`, `gateway:`"),
        ("a: [", "is not YAML: while parsing"),
        ("verifiers: []", "verifiers is empty; give at least one"),
        ("verifiers: 3", "verifiers is 3; it must be a list"),
        ("verifiers: [3]", "verifiers[0] is 3; it must hold fields, known are model, listen"),
        (ONE + "gatway: {}", "gatway is no field; known are verifiers, drafters, gateway"),
        ("verifiers: [{dtpye: float32}]", "verifiers[0].dtpye is no field; known are model"),
        ("verifiers: [{target_model: x}]", "verifiers[0].target_model is no field"),
        (
            "verifiers: [{}, {dtype: int3}]",
            "verifiers[1].dtype is 'int3'; it must be one of float32, bfloat16, float16",
        ),
        ("verifiers: [{model: absent}]", "verifiers[0].model is "),
        ("verifiers: [{model: 3}]", "verifiers[0].model is 3; it must be the path of something that exists"),
        ("verifiers: [{replicas: two}]", "verifiers[0].replicas is 'two'; it must be a whole number in 1..64"),
        ("verifiers: [{threads: true}]", "verifiers[0].threads is True; it must be a whole number in 0..1024"),
        ("verifiers: [{devices: cpu}]", "verifiers[0].devices is 'cpu'; it must be a list"),
        ("verifiers: [{devices: [tpu]}]", "verifiers[0].devices is ['tpu']; it must be a list"),
        ("verifiers: [{kv_memory: 512}]", "verifiers[0].kv_memory is 512; it must be a size such as 512MiB or 4GiB"),
        ("verifiers: [{listen: 50051}]", "verifiers[0].listen is 50051; it must be host:port"),
        ("verifiers: [{replicas: 3, devices: [cpu, cpu]}]", "verifiers[0].devices has 2 entries"),
        (ONE + "drafters: [{}]", "drafters without `model`"),
        (ONE + "drafters: [{name: x}]", "drafters[0].name is no field"),
        (ONE + "gateway: {verifiers: [h:0]}", "gateway.verifiers is ['h:0']; it must be a list"),
        (ONE + "placement: 3", "placement is 3; it must be one of separate, one_process"),
        (ONE + "gateway: 3", "gateway is 3; it must hold fields"),
    ],
)
def test_a_mistake_is_told_with_field_value_and_range(tmp_path: Path, text: str, said: str) -> None:
    (problem,) = problems(tmp_path, text)
    assert problem.startswith(said)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = "verifiers: [{dtype: int3, threads: -1, nonsense: 1}]\ngateway: {listen: here}"
    fields = [problem.split()[0] for problem in problems(tmp_path, text)]
    assert fields == ["verifiers[0].dtype", "verifiers[0].threads", "verifiers[0].nonsense", "gateway.listen"]


def test_mistakes_in_the_tenants_file_are_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("tenants: [{name: a, anonymous: true, fan_out: -1}]")
    with pytest.raises(ValueError, match=r"t\.yaml: tenants\[0\] \(a\): fan_out is -1"):
        load_topology(write(tmp_path, ONE + "gateway: {tenants: t.yaml}"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read: No such file"):
        load_topology(tmp_path / "absent.yaml")
