"""Which addresses may be connected to, in every form in which one can be written."""

import asyncio
import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from workloads.deep_research.serving.web.addresses import (
    AddressPolicy,
    ForbiddenAddressError,
    GuardedResolver,
    RefusedUrlError,
    checked_url,
    guarded_socket,
    mapped_endpoint,
)

GLOBAL = AddressPolicy()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.10", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
        "169.254.169.254", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1",
        "192.88.99.1", "203.0.113.9", "224.0.0.1", "240.0.0.1", "255.255.255.255",
        "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::7f00:1",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "2001:0:1::1",
        "not-an-address", "",
    ],
)  # fmt: skip
def test_no_private_or_special_address_may_be_connected_to(address: str) -> None:
    assert GLOBAL.forbids(address, 80) is not None


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_global_addresses_may(address: str) -> None:
    assert GLOBAL.forbids(address, 443) is None


def test_the_local_web_is_that_very_address_and_port() -> None:
    local = AddressPolicy(exactly=frozenset({("127.0.0.1", 4711)}))
    assert local.forbids("127.0.0.1", 4711) is None
    assert local.forbids("127.0.0.1", 4712) is not None
    assert local.forbids("127.0.0.2", 4711) is not None
    assert local.forbids("8.8.8.8", 80) is None
    alone = AddressPolicy(exactly=frozenset({("127.0.0.1", 4711)}), only_exactly=True, private=True)
    assert alone.forbids("127.0.0.1", 4711) is None
    assert alone.forbids("8.8.8.8", 80) is not None
    assert alone.forbids("127.0.0.1", 4712) is not None


def test_private_addresses_may_be_allowed() -> None:
    assert AddressPolicy(private=True).forbids("10.0.0.1", 80) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://127.0.0.1:8080/x", "http://[::1]/", "http://[::ffff:7f00:1]/",
        "http://[::ffff:169.254.169.254]/latest/meta-data/", "http://2130706433/", "http://0x7f000001/",
        "http://0x7f.0.0.1/", "http://0177.0.0.1/", "http://017700000001/", "http://127.1/", "http://127.0.1/",
        "http://127.0.0.1./", "http://2852039166/", "http://169.254.169.254/", "http://１２７.０.０.１/",
        "http://user@example.com/", "http://user:secret@example.com/", "http://:secret@example.com/",
        "http://example.com@127.0.0.1/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/",
        "javascript:alert(1)", "data:text/html,x", "example.com/page", "//example.com/", "", "http://", "http:///x",
        "http://[::1", "http://exa mple.com/", "http://example.com:99999/", "http://example.com:x/",
    ],
)  # fmt: skip
def test_urls_that_are_not_opened(url: str) -> None:
    with pytest.raises(RefusedUrlError):
        checked_url(url, GLOBAL)


@pytest.mark.parametrize(
    "url", ["http://example.com/", "https://example.com:8443/a?b=c", "http://8.8.8.8/", "https://münchen.de/ä"]
)
def test_urls_that_are(url: str) -> None:
    assert checked_url(url + "#part", GLOBAL).fragment == ""


class Answers(AbstractResolver):
    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=each, port=port, family=socket.AF_INET, proto=0, flags=0)
            for each in self.addresses
        ]

    async def close(self) -> None:
        pass


def resolve(*addresses: str) -> list[str]:
    found = asyncio.run(GuardedResolver(GLOBAL, Answers(*addresses)).resolve("name.example", 80))
    return [each["host"] for each in found]


def test_a_name_keeps_only_its_allowed_addresses() -> None:
    assert resolve("8.8.8.8", "127.0.0.1", "9.9.9.9") == ["8.8.8.8", "9.9.9.9"]
    assert resolve() == []
    with pytest.raises(ForbiddenAddressError, match=r"127\.0\.0\.1"):
        resolve("127.0.0.1", "10.0.0.1")


def test_no_socket_is_made_for_a_forbidden_address() -> None:
    make = guarded_socket(GLOBAL)
    with pytest.raises(ForbiddenAddressError):
        make((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80)))
    with pytest.raises(ForbiddenAddressError):
        make((socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 80, 0, 0)))
    make((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 80))).close()


def test_hosts_of_a_local_web_by_their_ending() -> None:
    mapped = {".test": ("127.0.0.1", 4711)}
    assert mapped_endpoint("lake.test", mapped) == ("127.0.0.1", 4711)
    assert mapped_endpoint("a.LAKE.test.", mapped) == ("127.0.0.1", 4711)
    assert mapped_endpoint("test", mapped) is None
    assert mapped_endpoint("lake.test.com", mapped) is None
    assert mapped_endpoint("latest", mapped) is None
