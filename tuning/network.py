"""The network settings of a fleet: addresses, certificates, dask's configuration. No jobs are here."""

from __future__ import annotations

import ipaddress
import logging
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpucomp.errors import DeviceError, UsageError, quote
from gpucomp.extras import install
from gpucomp.lazy_dataclass import dataclass

PORT = 8786
CERTIFICATES = "certificates=Certificates(authority, certificate, key)"
TLS_OPTIONS = "--tls-ca, --tls-cert and --tls-key"
SILENT_S = 30.0  # a worker without a heartbeat for this long is lost


@dataclass(frozen=True)
class Certificates:
    """The files of one machine: the authority that signed all certificates, and the machine's own certificate and key."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Address:
    """The scheduler's address. ``tls`` is true if certificates are given."""

    host: str
    port: int
    tls: bool

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'tcp'}://{host}:{self.port}"

    @classmethod
    def parse(cls, text: str, tls: bool) -> Address:
        """Parse ``tls://host:port``, ``tcp://host:port`` or ``host:port``.

        Raises ``UsageError`` for anything else, and without certificates for an address that is not loopback.
        """
        try:
            parts = urlsplit(text if "://" in text else f"//{text}")
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if not host or parts.scheme not in ("", "tcp", "tls") or parts.path.strip("/"):
            raise UsageError(f"address {quote(text)}: tls://10.0.0.1:{PORT} or the like expected", code="GPC2030")
        if parts.scheme == "tls" and not tls:
            raise UsageError(
                f"address {quote(text)}: tls:// needs certificates: give {CERTIFICATES}",
                code="GPC2031",
                in_shell=f"address {quote(text)}: tls:// needs certificates: give {TLS_OPTIONS}",
            )
        if parts.scheme == "tcp" and tls:
            raise UsageError(f"address {quote(text)}: certificates are given, so tls://{host} expected", code="GPC2031")
        if not tls and not is_loopback(host):
            why = "whoever reaches a worker can run code on it"
            raise UsageError(
                f"address {quote(text)}: another machine needs certificates, because {why}: give {CERTIFICATES}",
                code="GPC2031",
                in_shell=f"address {quote(text)}: another machine needs certificates, because {why}: give {TLS_OPTIONS}",
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
    """Import and configure dask.distributed. Raises ``DeviceError`` if it is not installed."""
    try:
        import dask
        import distributed as found
    except ImportError:
        raise DeviceError(f"a fleet needs dask.distributed: {install('dist')}", code="GPC5003") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # relevant events are reported as gpucomp errors
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
    """dask's security settings for both ends. Raises ``UsageError`` for files that cannot be read or are no certificates."""
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
        raise UsageError(f"certificates: {named} cannot be used: {error.reason or error}", code="GPC2031") from None
    own = {
        f"tls_{role}_{part}": str(path)
        for role in ("client", "scheduler", "worker")
        for part, path in (("cert", certificates.certificate), ("key", certificates.key))
    }
    return kind(require_encryption=True, tls_ca_file=str(certificates.authority), **own)
