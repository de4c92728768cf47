"""A fleet with certificates: who has none, or those of another authority, is refused in one sentence."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from kernelscape.runtime.fleet.fleet_file import TlsFiles, load_fleet, save_fleet
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.record import EvaluationRecord

trustme = pytest.importorskip("trustme")
pytest.importorskip("distributed")


def certified(folder: Path) -> TlsFiles:
    """A new authority, and a certificate of it with its key."""
    folder.mkdir(parents=True)
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    ca, cert, key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(ca)
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    return TlsFiles(str(ca), str(cert), str(key))


def options(tls: TlsFiles) -> list[str]:
    return ["--tls-ca", tls.ca, "--tls-cert", tls.cert, "--tls-key", tls.key]


def test_a_search_with_certificates_and_those_who_have_none(tmp_path, explore) -> None:
    file, own = tmp_path / "fleet.json", certified(tmp_path / "own")
    assert explore("fleet", "start", file, *options(own))[0] == 0
    address = load_fleet(file).address
    assert address.startswith("tls://")
    command = [sys.executable, "-m", "kernelscape.cli", "worker", "--device", "fake"]
    worker = subprocess.Popen([*command, "--fleet", str(file)], stderr=subprocess.PIPE, text=True)
    assert worker.stderr is not None
    lines = [worker.stderr.readline() for _ in range(2)]
    assert "ends with the fleet" in lines[1], lines

    given = ("axpydot", "--size", "n=64", "--target", "fake", "--max-evals", 3, "-q")
    run = tmp_path / "run"
    code, _, err = explore("run", *given, "--fleet", file, "-o", run)
    assert code == 0, err
    found = [r for r in read_journal(run / "journal.jsonl") if isinstance(r, EvaluationRecord)]
    assert len(found) == 3

    fleet, strange = load_fleet(file), certified(tmp_path / "strange")
    plain = msgspec.structs.replace(fleet, address=address.replace("tls", "tcp"), tls=None)
    files = {
        "of another authority": (msgspec.structs.replace(fleet, tls=strange), "does not answer"),
        "plain": (plain, "does not answer"),
        "without its certificates": (
            msgspec.structs.replace(fleet, tls=TlsFiles("/no/ca.pem", own.cert, own.key)),
            "/no/ca.pem of .* is not here",
        ),
        "of a key that does not fit": (
            msgspec.structs.replace(fleet, tls=TlsFiles(own.ca, own.cert, strange.key)),
            r"certificates .* cannot be used: \w+",
        ),
    }
    for name, (content, why) in files.items():
        other = tmp_path / f"{name}.json"
        save_fleet(other, content)
        for asking in (
            ("fleet", "status", other),
            ("worker", "--fleet", other, "--device", "fake"),
        ):
            code, _, err = explore(*asking)
            assert code == 3, (name, err)
            assert "Traceback" not in err
            assert len(err.strip().splitlines()) == 1, (name, err)
            said = why.replace("does not answer", "does not answer|nobody answers")
            assert re.search(said, err), (name, err)
    assert explore("fleet", "stop", file)[0] == 0
    worker.wait(20)
    worker.stderr.close()


@pytest.mark.parametrize("missing", ["--tls-ca", "--tls-key"])
def test_certificates_belong_together(tmp_path, explore, missing) -> None:
    given = options(certified(tmp_path / "own"))
    at = given.index(missing)
    code, _, err = explore("fleet", "start", tmp_path / "fleet.json", *given[:at], *given[at + 2 :])
    assert (code, "belong together" in err) == (2, True)
    swapped = options(TlsFiles(given[5], given[3], given[1]))
    code, _, err = explore("fleet", "start", tmp_path / "fleet.json", *swapped)
    assert (code, "cannot be used" in err) == (3, True)
    code, _, err = explore("fleet", "start", tmp_path / "fleet.json", missing, "/no/file.pem")
    assert (code, "does not exist" in err) == (2, True)
