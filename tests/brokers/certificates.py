"""Certificates made for one test run: an authority, a server's, a client's, and the two that must be refused."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = dt.timedelta(days=1)
KEY_PASSWORD = "opens the client's key"


@dataclass(frozen=True)
class Identity:
    """A certificate and its key in PEM files; `both` holds the two in one file, as Kafka's PEM key store wants them."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """A certificate authority in a folder. Everything is signed anew in each run, so nothing in the repository expires."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = dt.datetime.now(dt.UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 30 * _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "ca.pem"
        self.file.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def server(self, name: str, host: str | None = None, *, expired: bool = False) -> Identity:
        """For 127.0.0.1 and localhost, or for `host` alone."""
        names: list[x509.GeneralName] = [x509.DNSName(host or "localhost")]
        if host is None:
            names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        return self._issue(name, x509.SubjectAlternativeName(names), ExtendedKeyUsageOID.SERVER_AUTH, expired=expired)

    def client(self, name: str, *, expired: bool = False) -> Identity:
        return self._issue(name, None, ExtendedKeyUsageOID.CLIENT_AUTH, expired=expired)

    def _issue(
        self, name: str, names: x509.SubjectAlternativeName | None, purpose: x509.ObjectIdentifier, *, expired: bool
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 20 * _DAY)
            .not_valid_after(now - _DAY if expired else now + _DAY)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(_usage(signs=False), critical=True)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        files = Identity(*(self._folder / f"{name}.{kind}" for kind in ("crt", "key", "pem")))
        files.certificate.write_bytes(certificate)
        files.key.write_bytes(secret)
        files.both.write_bytes(secret + certificate)
        locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode()))
        (self._folder / f"{name}.locked.key").write_bytes(locked)
        return files


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
