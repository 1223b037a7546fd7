"""Which addresses may be connected to: a page must not lead a tool into the network it runs in.

The check is made three times: on the url (scheme, user information, addresses written as numbers), on what a name
resolves to, and on the very address that a socket is made for. Only the last can't be talked round; the others say
better what is wrong.
"""

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Endpoint = tuple[str, int]

# Beside what `ipaddress` knows to be not global (private, loopback, link-local, shared, documentation, benchmarking):
# protocol assignments, 6to4 relays, the old site-local range, and a cloud's host service on a public address.
_MORE = tuple(
    ipaddress.ip_network(text)
    for text in ("0.0.0.0/8", "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "fec0::/10", "64:ff9b:1::/48")
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class ForbiddenAddressError(OSError):
    """An address that must not be connected to."""


class RefusedUrlError(Exception):
    """A url that is not opened: its scheme, user information or address forbids it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPolicy:
    """What may be connected to. By default every global unicast address, and nothing else."""

    private: bool = False  # every address
    exactly: frozenset[Endpoint] = field(default=frozenset())  # (address, port): these beside the global ones
    only_exactly: bool = False  # these and nothing else

    def forbids(self, address: str, port: int) -> str | None:
        """Why this address must not be connected to; None if it may."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return f"{address} is no address"
        if (str(parsed), port) in self.exactly:
            return None
        if self.only_exactly:
            return f"{address} port {port} is not part of the local web"
        if self.private:
            return None
        return None if _global(parsed) else f"{address} is a private or reserved address"


def _global(address: IPAddress) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return _global(address.ipv4_mapped)
        if address in _NAT64:  # what a network without IPv4 reaches IPv4 by: judged by where it leads
            return _global(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.sixtofour is not None and not _global(address.sixtofour):
            return False
    if address.is_multicast or address.is_reserved or not address.is_global:
        return False
    return not any(address in network for network in _MORE if network.version == address.version)


def checked_url(text: str | URL, policy: AddressPolicy) -> URL:
    """The url, if it may be asked for.

    Raises:
        RefusedUrlError: it is no url of the web, has user information, or names a forbidden address.
    """
    try:
        url = URL(text)
        host, port, user = url.host, url.port, url.raw_user or url.raw_password
    except (ValueError, TypeError) as error:
        raise RefusedUrlError(f"no valid url: {error}") from None
    if url.scheme not in ("http", "https"):
        raise RefusedUrlError(f"only http and https are opened, not {url.scheme or 'an address without a scheme'}")
    if user is not None:
        raise RefusedUrlError("urls with a user name or password are not opened")
    if not host or port is None:
        raise RefusedUrlError("the url names no host")
    if not host.isprintable() or " " in host:
        raise RefusedUrlError("the host's name has characters that no name has")
    literal = _literal(host)
    if literal is None and _numeric(host):
        raise RefusedUrlError(f"{host} is an address in an unusual form")
    if literal is not None and (reason := policy.forbids(literal, port)):
        raise RefusedUrlError(reason)
    return url.with_fragment(None)


def _literal(host: str) -> str | None:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def _numeric(host: str) -> bool:
    """Decimal, octal, hexadecimal and shortened IPv4 addresses: the C library takes them for addresses."""
    try:
        socket.inet_aton(host.rstrip("."))
    except (OSError, ValueError):
        return False
    return True


class GuardedResolver(AbstractResolver):
    """Answers with the addresses of a name that may be connected to."""

    def __init__(self, policy: AddressPolicy, inner: AbstractResolver) -> None:
        self._policy = policy
        self._inner = inner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The allowed addresses.

        Raises:
            ForbiddenAddressError: the name has addresses, and none may be connected to.
            OSError: the name has none.
        """
        try:
            found = await self._inner.resolve(host, port, family)
        except UnicodeError:  # a label that is empty or too long
            raise OSError(f"{host} is no host name") from None
        reasons = [self._policy.forbids(each["host"], each["port"]) for each in found]
        allowed = [each for each, reason in zip(found, reasons, strict=True) if reason is None]
        if found and not allowed:
            raise ForbiddenAddressError(f"{host} leads to a forbidden address: {reasons[0]}")
        return allowed

    async def close(self) -> None:
        """Closes the resolver that was asked."""
        await self._inner.close()


def guarded_socket(policy: AddressPolicy) -> Any:
    """A maker of sockets for aiohttp's connector that refuses an address just before it is connected to."""

    def make(info: tuple[Any, Any, int, str, tuple[Any, ...]]) -> socket.socket:
        family, kind, protocol, _, address = info
        if reason := policy.forbids(str(address[0]), int(address[1])):
            raise ForbiddenAddressError(reason)
        return socket.socket(family=family, type=kind, proto=protocol)

    return make


def forbidden_cause(error: BaseException) -> ForbiddenAddressError | None:
    """The refusal under an error of the connection, if that is what it was."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, ForbiddenAddressError):
            return each
        todo += [getattr(each, "os_error", None), each.__cause__, each.__context__]
    return None


def mapped_endpoint(host: str, mapped: Mapping[str, Endpoint]) -> Endpoint | None:
    """Where a host is served: `mapped` has endings (".test") and the endpoints for all hosts under them."""
    for ending, endpoint in mapped.items():
        if host.lower().rstrip(".").endswith(ending):
            return endpoint
    return None
