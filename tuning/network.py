"""Where a fleet's machines find each other, and what they show: addresses, certificates, dask's settings. No jobs here."""

from __future__ import annotations

import ipaddress
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpucomp.errors import DeviceError, UsageError, quote

PORT = 8786
SILENT_S = 30.0  # without a heartbeat, after which a worker counts as lost


@dataclass(frozen=True)
class Certificates:
    """Files of one machine: the authority that signed everybody's, and its own."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Address:
    """Where the scheduler listens, or is to be found. ``tls`` is decided by ``Certificates`` being given."""

    host: str
    port: int
    tls: bool

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'tcp'}://{host}:{self.port}"

    @classmethod
    def parse(cls, text: str, tls: bool) -> Address:
        """``tls://host:port``, ``tcp://host:port`` or ``host:port``.

        Raises ``UsageError`` for what is none, and without certificates for all but the loopback interface.
        """
        try:
            parts = urlsplit(text if "://" in text else f"//{text}")
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if not host or parts.scheme not in ("", "tcp", "tls") or parts.path.strip("/"):
            raise UsageError(f"{quote(text)}: an address such as tls://10.0.0.1:{PORT} expected", code="GPC2030")
        if parts.scheme == "tls" and not tls:
            raise UsageError(
                f"{quote(text)}: certificates are missing: --tls-ca, --tls-cert and --tls-key", code="GPC2031"
            )
        if parts.scheme == "tcp" and tls:
            raise UsageError(f"{quote(text)}: with certificates the address is tls://{host}", code="GPC2031")
        if not tls and not is_loopback(host):
            raise UsageError(
                f"{quote(text)}: whoever reaches a worker can run code on it, so without certificates only this"
                " machine's own addresses are served: give --tls-ca, --tls-cert and --tls-key",
                code="GPC2031",
            )
        return cls(host, PORT if port is None else port, tls)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def distributed() -> Any:
    """The package, told what a fleet needs of it. Raises ``DeviceError`` where it is not installed."""
    try:
        import dask
        import distributed as found
    except ImportError:
        raise DeviceError("a fleet needs dask.distributed: pip install 'gpucomp[dist]'", code="GPC5003") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters comes as errors, with words of ours
    dask.config.set(
        {
            "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [],
            "distributed.scheduler.allowed-failures": 0,
            "distributed.scheduler.work-stealing": False,
            "distributed.scheduler.worker-ttl": f"{SILENT_S:g}s",
            "distributed.worker.memory.target": False,
            "distributed.worker.memory.spill": False,
            "distributed.worker.memory.pause": False,
            "distributed.worker.memory.terminate": False,
        }
    )
    return found


def security(certificates: Certificates | None) -> Any:
    """What both ends ask of each other. Raises ``UsageError`` for files that cannot be read, or are no certificates."""
    kind = distributed().Security
    if certificates is None:
        return kind(require_encryption=False)
    for path in (certificates.authority, certificates.certificate, certificates.key):
        try:
            path.read_bytes()
        except OSError as error:
            raise UsageError(f"certificates: cannot read {quote(path)}: {error.strerror}", code="GPC2031") from None
    named = quote(certificates.authority)
    try:
        context = ssl.create_default_context(cafile=certificates.authority)
        named = f"{quote(certificates.certificate)} with {quote(certificates.key)}"
        context.load_cert_chain(certificates.certificate, certificates.key)
    except ssl.SSLError as error:
        raise UsageError(f"certificates: {named} will not do: {error.reason or error}", code="GPC2031") from None
    own = {f"tls_{role}_{part}": str(path) for role in ("client", "scheduler", "worker")
           for part, path in (("cert", certificates.certificate), ("key", certificates.key))}  # fmt: skip
    return kind(require_encryption=True, tls_ca_file=str(certificates.authority), **own)
