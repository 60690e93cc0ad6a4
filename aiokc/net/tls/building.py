"""Building an SSLContext from the options; takes milliseconds and reads files, so it runs in a thread."""

from __future__ import annotations

import os
import ssl
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...config import SecurityConfig
from ...errors import ConfigError
from ...secret import Secret
from .der import Validity, validity
from .key_file import key_file
from .our_side import OurSide
from .pem import text_of
from .stores import Identity, NothingToSpare, Trust, file_failed, read_identity, read_trust

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Built:
    """An SSLContext, and what it brings to a handshake."""

    context: ssl.SSLContext
    side: OurSide


def given(context: ssl.SSLContext) -> Built:
    """Return what there is to say about the application's own context."""
    side = OurSide(trusts="the ssl_context", certificate="ssl_context", valid=None, versions="those of the ssl_context")
    return Built(context, side)


def build(config: SecurityConfig) -> Built:
    """Return a new context for the options, with the files as they are now.

    Raises ConfigError; FileFailed, which is one, where the files as they are may be right.

    Certificates and names are verified, TLS is 1.2 at least. SSLKEYLOGFILE is honoured, as by the standard library.
    """
    try:
        return _built(config)
    except ConfigError as error:
        kind, told = type(error), str(error)
    # A new error, without the frames of the first one: what reports errors may show variables, and some held a key.
    raise kind(told)


def _built(config: SecurityConfig) -> Built:
    trust, identity = read_trust(config), read_identity(config)
    try:
        if trust is None:
            context, trusts = trusting_the_system(), _system_store()
        else:
            context, trusts = _trusting(trust), trust.where
    except OSError as error:
        what = "no TLS context can be made" if (log := _key_log()) is None else f"SSLKEYLOGFILE={log!r}"
        raise file_failed(what, error) from error
    context.check_hostname = bool(config.ssl_endpoint_identification_algorithm)
    versions = sorted(_VERSIONS[name] for name in config.ssl_enabled_protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION  # Kafka has no use for it; a hostile broker could ask without end
    if identity is not None:
        _identify(context, identity, config.ssl_key_password)
    side = OurSide(
        trusts=trusts,
        certificate=None if identity is None else identity.where,
        valid=None if identity is None else _validity(identity),
        versions=" and ".join(sorted(config.ssl_enabled_protocols)),
    )
    return Built(context, side)


def trusting_the_system() -> ssl.SSLContext:
    """Return a new context that trusts the system's authorities. Raises FileFailed where their file can't be read.

    OpenSSL says nothing of that: a moment without a free descriptor would leave a context that trusts nobody for good.
    A folder of authorities is looked into at each handshake: beside it, a file that this user may not read is none.
    """
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if not paths.cafile or context.cert_store_stats()["x509"]:
        return context
    try:
        context.load_verify_locations(cafile=paths.cafile)  # as it has done, but this raises what the system says
    except ssl.SSLError:  # it holds no certificate
        pass
    except OSError as error:
        failed = file_failed(f"the system's store ({paths.cafile})", error)
        if not paths.capath or isinstance(failed, NothingToSpare):
            raise failed from error
    return context


def _system_store() -> str:
    paths = ssl.get_default_verify_paths()
    found = [path for path in (paths.cafile, paths.capath) if path]
    if sys.platform == "win32":  # ssl loads what they hold besides
        found.insert(0, "Windows' own stores")
    # Python of python.org has an OpenSSL of its own on macOS, which looks for a file that this script links.
    how = 'run Python\'s "Install Certificates.command"' if sys.platform == "darwin" else "install ca-certificates"
    missing = f"it has none where OpenSSL looks: {how}, or name a file in ssl_truststore_location"
    return f"the system's store ({', '.join(found) or missing})"


def _trusting(trust: Trust) -> ssl.SSLContext:
    """Return a context that trusts these certificates only, each as it stands."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and names, and trusts nothing yet
    for number, certificate in enumerate(trust.certificates, 1):
        try:
            context.load_verify_locations(cadata=certificate)  # bytes are DER to it, and a str is PEM
        except (ssl.SSLError, ValueError) as error:
            which = f"certificate {number} of {len(trust.certificates)}"
            raise ConfigError(f"{trust.where}: {which} is damaged ({_reason(error)})") from error
        # Loading holds the interpreter's lock: 0.3 ms for each, and 25 ms for 144 in one call, in which no loop could
        # run. A sleep of no time lets the lock go.
        time.sleep(0)
    # Python's default context is strict since 3.13: it refuses an authority that a plain `openssl req -x509` has made,
    # for want of a key usage. For public authorities that is right, and stays; an application that names an authority
    # of its own has decided to trust it. So this context does not get VERIFY_X509_STRICT.
    #
    # As in Java, whatever a trust store holds is trusted as it stands: an intermediate authority without its root, or
    # one server's certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if log := _key_log():
        context.keylog_filename = log
    return context


def _key_log() -> str | None:
    return None if sys.flags.ignore_environment else os.environ.get("SSLKEYLOGFILE")


def _identify(context: ssl.SSLContext, identity: Identity, password: Secret | str | None) -> None:
    """Load the key and its chain into the context. Raises ConfigError.

    Each try has a context of its own: load_cert_chain leaves one broken whose certificate does not fit the key.
    """
    chain, mismatch = identity.chain, "KEY_VALUES_MISMATCH"
    for leaf in chain:  # a file may have its certificates in any order
        ordered = [leaf, *(other for other in chain if other is not leaf)]
        problem = _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), identity, ordered, password)
        if problem is None:
            problem = _load(context, identity, ordered, password)
            if problem is None:
                return
        if problem != mismatch:
            raise ConfigError(f"{identity.where}: {_explained(problem, identity, password)}")
    raise ConfigError(f"{identity.where}: the private key and the certificate do not belong together ({mismatch})")


def _load(
    context: ssl.SSLContext, identity: Identity, chain: Sequence[bytes], password: Secret | str | None
) -> str | None:
    """Load the key and ``chain``; return OpenSSL's reason where it refuses them. Raises ConfigError."""
    secret = Secret(password) if isinstance(password, str) else password

    def reveal() -> bytes:
        # Without a callback, OpenSSL would ask on the terminal for the password, and block until it is typed.
        if secret is None:
            raise ConfigError(f"{identity.where}: the private key is encrypted: give ssl_key_password")
        # A password that is no Unicode text is a wrong one. An UnicodeEncodeError would show a part of it.
        return secret.reveal().encode("utf-8", "surrogatepass")

    text = identity.key.text.reveal() + "".join(text_of("CERTIFICATE", certificate) for certificate in chain)
    try:
        with key_file(text.encode()) as path:
            context.load_cert_chain(path, password=reveal)
    except ssl.SSLError as error:
        return _reason(error)
    except OSError as error:  # no room in the folder for temporary files, say
        raise file_failed(f"{identity.where}: no file for the private key", error) from error
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        return str(error)  # a password of more than 1024 bytes
    return None


def _explained(reason: str, identity: Identity, password: Secret | str | None) -> str:
    if identity.key.is_encrypted and password is not None:
        return f"the private key does not open: ssl_key_password is wrong, or the key is damaged ({reason})"
    return f"the private key or the certificate is damaged, or of a kind that OpenSSL refuses ({reason})"


def _validity(identity: Identity) -> Validity | None:
    try:
        return validity(identity.chain[0])
    except ValueError:
        return None  # it serves messages only


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
