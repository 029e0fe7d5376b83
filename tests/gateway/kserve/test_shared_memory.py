"""Regions that callers registered: what may be read, and what never is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.kserve.shared_memory import MAX_REGIONS, Region, SharedMemoryRegions, check_local
from slipstream.errors import Exhausted, InvalidRequest


@pytest.fixture
def regions(tmp_path: Path) -> SharedMemoryRegions:
    (tmp_path / "prompt").write_bytes(b"0123456789")
    return SharedMemoryRegions(tmp_path)


def region(name: str = "r", key: str = "/prompt", offset: int = 0, num_bytes: int = 10) -> Region:
    return Region(name, key, offset, num_bytes)


@pytest.mark.parametrize("key", ["/prompt", "prompt"])
def test_a_part_of_a_region_is_read(regions: SharedMemoryRegions, key: str) -> None:
    regions.register("t", region(key=key, offset=2, num_bytes=6))
    assert regions.read("t", "r", 1, 3) == b"345"


def test_what_a_region_holds_is_read_anew_each_time(regions: SharedMemoryRegions, tmp_path: Path) -> None:
    regions.register("t", region())
    (tmp_path / "prompt").write_bytes(b"abcdefghij")
    assert regions.read("t", "r", 0, 3) == b"abc"


@pytest.mark.parametrize(
    ("offset", "num_bytes"), [(0, 0), (0, 11), (5, 6), (-1, 3), (0, -1), (1 << 40, 1), (0, 1 << 40)]
)
def test_nothing_outside_a_region_is_read(regions: SharedMemoryRegions, offset: int, num_bytes: int) -> None:
    regions.register("t", region())
    with pytest.raises(InvalidRequest, match="must lie within the 10 bytes of region 'r'"):
        regions.read("t", "r", offset, num_bytes)


@pytest.mark.parametrize(("offset", "num_bytes"), [(0, 0), (0, 11), (8, 3), (11, 1), (1 << 63, 1), (0, (1 << 64) - 1)])
def test_a_region_lies_within_its_memory(regions: SharedMemoryRegions, offset: int, num_bytes: int) -> None:
    with pytest.raises(InvalidRequest, match="must lie within the 10 bytes of '/prompt'"):
        regions.register("t", region(offset=offset, num_bytes=num_bytes))


def test_a_region_that_was_shortened_is_an_error_not_a_crash(regions: SharedMemoryRegions, tmp_path: Path) -> None:
    regions.register("t", region())
    os.truncate(tmp_path / "prompt", 3)
    with pytest.raises(InvalidRequest, match="has become shorter"):
        regions.read("t", "r", 0, 10)


@pytest.mark.parametrize(
    "key", ["", "/", "..", "/..", "../secret", "/../secret", "/a/b", "//prompt", "a\0b", "/.", "x" * 300, "/pro mpt"]
)
def test_a_key_names_a_file_of_its_folder_and_no_path(tmp_path: Path, key: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "shm").mkdir()
    with pytest.raises(InvalidRequest, match="key is"):
        SharedMemoryRegions(tmp_path / "shm").register("t", region(key=key, num_bytes=1))


def test_links_pipes_and_folders_are_no_shared_memory(regions: SharedMemoryRegions, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "prompt")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for key in ("link", "pipe", "folder", "absent"):
        with pytest.raises(InvalidRequest, match=f"key '{key}'"):
            regions.register("t", region(key=key, num_bytes=1))


def test_tenants_do_not_see_each_others_regions(regions: SharedMemoryRegions) -> None:
    regions.register("one", region())
    assert regions.registered("two", "") == []
    for refused in (lambda: regions.read("two", "r", 0, 1), lambda: regions.registered("two", "r")):
        with pytest.raises(InvalidRequest, match="region 'r' is not registered"):
            refused()
    regions.unregister("two", "")
    assert regions.registered("one", "r") == [region()]


def test_a_name_is_registered_once_and_free_again_afterwards(regions: SharedMemoryRegions) -> None:
    regions.register("t", region())
    with pytest.raises(InvalidRequest, match="registered already"):
        regions.register("t", region())
    regions.unregister("t", "r")
    regions.unregister("t", "r")
    regions.register("t", region())
    with pytest.raises(InvalidRequest, match="name is empty"):
        regions.register("t", region(name=""))


def test_a_tenant_has_so_many_regions(regions: SharedMemoryRegions) -> None:
    for number in range(MAX_REGIONS):
        regions.register("t", region(name=str(number)))
    with pytest.raises(Exhausted, match="unregister one first"):
        regions.register("t", region())
    regions.unregister("t", "")
    regions.register("t", region())


@pytest.mark.parametrize("peer", ["ipv4:127.0.0.1:5000", "ipv6:%5B::1%5D:5000", "unix:/run/s.sock", "unix:"])
def test_a_caller_on_this_machine_is_known_by_its_address(peer: str) -> None:
    check_local(peer)


@pytest.mark.parametrize("peer", ["ipv4:10.0.0.7:5000", "ipv6:%5B2001:db8::1%5D:1", "ipv4:128.127.0.1:1", ""])
def test_callers_elsewhere_have_no_memory_here(peer: str) -> None:
    with pytest.raises(InvalidRequest, match="for callers on the gateway's machine"):
        check_local(peer)
