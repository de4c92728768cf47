"""Fleet file: the address of a scheduler, and the certificates that drivers and workers use to connect.

Dask executes whatever it receives. So an address without TLS must be on this machine (or a tunnel that ends here), any other
uses TLS. An address without TLS is open to all users of this machine.
"""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path

import msgspec

from ..api.errors import DeviceError
from ..files import NOTE_BYTES, is_there, read_own, write_atomically


class TlsFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Paths of the certificate authority, the certificate and its key, which driver, workers and scheduler all need."""

    ca: str
    cert: str
    key: str


class FleetFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Content of a fleet file. `pid` is the process of the scheduler, on the machine where it was started."""

    address: str
    version: str
    pid: int
    tls: TlsFiles | None = None


def load_fleet(path: Path) -> FleetFile:
    """Returns the content of a fleet file. Raises DeviceError, one sentence, also for a forbidden address."""
    if not is_there(path):
        raise DeviceError(f"{path} is not there: explore fleet start {path} makes it")
    try:
        found = msgspec.json.decode(read_own(path, NOTE_BYTES), type=FleetFile)
    except OSError as e:
        raise DeviceError(f"{path} cannot be used: {e.strerror or e}") from e
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise DeviceError(f"{path} is the file of no fleet: {e}") from e
    check_address(found.address, has_tls=found.tls is not None)
    if found.tls is not None:
        gone = [x for x in (found.tls.ca, found.tls.cert, found.tls.key) if not Path(x).is_file()]
        if gone:
            raise DeviceError(
                f"{gone[0]} of {path} is not here: all machines have the certificates at its paths"
            )
        check_certificates(found.tls)
    return found


def check_certificates(tls: TlsFiles) -> None:
    """Raises DeviceError, one sentence, for files that are no certificates, and a key that is not the certificate's."""
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        context.load_cert_chain(tls.cert, tls.key, password=lambda: "")  # nobody is asked for one
    except (OSError, ValueError) as e:
        why = getattr(e, "reason", None) or getattr(e, "strerror", None) or e
        names = ", ".join((tls.ca, tls.cert, tls.key))
        raise DeviceError(f"the certificates {names} cannot be used: {why}") from e


def save_fleet(path: Path, fleet: FleetFile) -> None:
    write_atomically(path, msgspec.json.format(msgspec.json.encode(fleet), indent=2) + b"\n")


def check_address(address: str, *, has_tls: bool) -> None:
    """Raises DeviceError, one sentence, for an address on another machine without TLS."""
    protocol, _, place = address.partition("://")
    if not place.rpartition(":")[2].isdigit():
        raise DeviceError(f"{address} is no address: it ends with the number of a port")
    if protocol == "tls" and has_tls:
        return
    if protocol == "tcp" and is_loopback(place.rpartition(":")[0].strip("[]")):
        return
    raise DeviceError(
        f"{address} is no address of this machine, and without TLS whoever reaches it could run anything: start the fleet with"
        " --tls-ca, --tls-cert and --tls-key, or reach it by a tunnel (ssh -L)"
    )


def is_loopback(host: str) -> bool:
    """True if a host name or number is a loopback address of this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
