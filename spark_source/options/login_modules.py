"""What a login module of `kafka.sasl.jaas.config` means in options of aiokc. Pure: class names are only compared.

A module is known by the last part of its name, whatever package it is in: Databricks, for one, puts `kafkashaded.`
before it. No class is ever loaded, so the modules that CVE-2023-25194 and CVE-2025-27818 are about mean nothing here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiokc.errors import ConfigError

if TYPE_CHECKING:
    from .jaas import JaasEntry


class _Module(NamedTuple):
    mechanisms: tuple[str, ...]
    fields: Mapping[str, str]  # of SecurityConfig, by the names that the module has for them
    required: tuple[str, ...] = ()


_PASSWORD: Final = {"username": "sasl_plain_username", "password": "sasl_plain_password"}
_MODULES: Final = {
    "PlainLoginModule": _Module(("PLAIN",), _PASSWORD, ("username", "password")),
    "ScramLoginModule": _Module(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"), {**_PASSWORD, "tokenauth": "sasl_tokenauth"}, ("username", "password")
    ),
    "OAuthBearerLoginModule": _Module(
        ("OAUTHBEARER",),
        {
            "clientId": "sasl_oauthbearer_client_credentials_client_id",
            "clientSecret": "sasl_oauthbearer_client_credentials_client_secret",
            "scope": "sasl_oauthbearer_scope",
        },
    ),
    "Krb5LoginModule": _Module(
        ("GSSAPI",),
        {
            "keyTab": "sasl_kerberos_keytab",
            "principal": "sasl_kerberos_principal",
            "serviceName": "sasl_kerberos_service_name",
        },
    ),
}
_EXTENSION: Final = "extension_"

_OTHER_MODULES: Final = {
    "IAMLoginModule": "set kafka.sasl.mechanism=AWS_MSK_IAM and kafka.sasl.aws.region, and leave the callback handler "
    "and kafka.sasl.jaas.config out; for its options there are kafka.sasl.aws.profile and kafka.sasl.aws.role.arn",
    "UnboundIDScramLoginModule": "use ScramLoginModule",
}

_NO_KINIT: Final = "aiokc starts no kinit: keep the ticket fresh outside of Spark, or name a keytab by keyTab"
#: Options that are refused, by the names that Java's modules have for them, and what to write instead.
_REFUSED: Final = {
    "renewTGT": _NO_KINIT,
    "ticketCache": "set KRB5CCNAME in the environment of the driver and of the executors",
    "debug": "set KRB5_TRACE in the environment of the executors",
    "useFirstPass": "leave it out: there is no user to ask",
    "tryFirstPass": "leave it out: there is no user to ask",
    "awsRoleArn": "set kafka.sasl.aws.role.arn, with kafka.sasl.mechanism=AWS_MSK_IAM",
    "awsProfileName": "set kafka.sasl.aws.profile, with kafka.sasl.mechanism=AWS_MSK_IAM",
    "refresh_token": "set kafka.sasl.oauthbearer.token.endpoint.url, with clientId and clientSecret",
}
_UNSECURED: Final = "unsecuredLogin"
# What Krb5LoginModule is told beside the keytab. The values are those that aiokc acts by; the others are refused.
_KERBEROS_FLAGS: Final = {
    "useKeyTab": "true",
    "useTicketCache": "true",
    "storeKey": "",  # both: the keytab is read for each login
    "doNotPrompt": "true",
    "isInitiator": "true",
    "refreshKrb5Config": "",
    "renewTGT": "false",
    "debug": "false",
}
_KNOWN_NAMES: Final = {
    name.lower(): name
    for names in (*(module.fields for module in _MODULES.values()), _REFUSED, _KERBEROS_FLAGS)
    for name in names
}


def login_fields(option: str, entry: JaasEntry, mechanism: str | None) -> dict[str, Any]:
    """Return the fields of SecurityConfig that this login module and its options stand for.

    Raises ConfigError for a module or an option that aiokc does not have, for a missing one, and for a module that is
    not for ``mechanism`` (None: the query names no mechanism). No message has a value, nor a name that may be a part of
    a value: only names that some login module has.
    """
    name = entry.module.rpartition(".")[2]
    module = _MODULES.get(name)
    if module is None:
        raise ConfigError(f"option '{option}': {_unknown_module(name)}")
    if mechanism not in module.mechanisms:
        contradicted = f"not {mechanism}" if mechanism else "and 'kafka.sasl.mechanism' is missing"
        raise ConfigError(
            f"option '{option}': {name} is for kafka.sasl.mechanism={' or '.join(module.mechanisms)}, {contradicted}"
        )
    found: dict[str, Any] = {}
    extensions: dict[str, str] = {}
    for key, value in entry.options.items():
        if key in module.fields:
            found[module.fields[key]] = value
        elif name == "OAuthBearerLoginModule" and key.startswith(_EXTENSION):
            extensions[key.removeprefix(_EXTENSION)] = value
        elif not (name == "Krb5LoginModule" and _is_obeyed(option, entry, key)):
            raise ConfigError(f"option '{option}', {entry.places[key]}: {_unknown_option(name, module, key)}")
    if missing := [key for key in module.required if not entry.options.get(key)]:
        raise ConfigError(f"option '{option}': {name} needs {' and '.join(missing)}: {missing[0]}=\"...\"")
    if "sasl_tokenauth" in found:
        found["sasl_tokenauth"] = _boolean(option, entry, "tokenauth")
    if extensions:
        found["sasl_oauthbearer_extensions"] = extensions
    return found


def _is_obeyed(option: str, entry: JaasEntry, key: str) -> bool:
    """Return whether ``key`` is a flag of Krb5LoginModule; raise ConfigError if its value is not what aiokc does."""
    if key not in _KERBEROS_FLAGS:
        return False
    value, done = _boolean(option, entry, key), _KERBEROS_FLAGS[key]
    at = f"option '{option}', {entry.places[key]}"
    if key == "useKeyTab" and value and "keyTab" not in entry.options:
        raise ConfigError(f'{at}: useKeyTab=true needs the file: keyTab="/path/on/each/executor"')
    if key == "useKeyTab" and not value and "keyTab" in entry.options:
        raise ConfigError(f"{at}: useKeyTab=false contradicts keyTab: leave one of them out")
    if key in ("useKeyTab", "useTicketCache") or not done or value == (done == "true"):
        return True
    instead = _REFUSED.get(key, "leave it out")
    raise ConfigError(f"{at}: {key} can't be {str(value).lower()} here; {instead}")


def _boolean(option: str, entry: JaasEntry, key: str) -> bool:
    value = entry.options[key].lower()
    if value not in ("true", "false"):
        raise ConfigError(f"option '{option}', {entry.places[key]}: {key} must be true or false")
    return value == "true"


def _unknown_module(name: str) -> str:
    if name in _OTHER_MODULES:
        return f"{name} is a class of Java's, which can't run here; {_OTHER_MODULES[name]}"
    # What is no class of login modules may be a password at the wrong place.
    shown = f"{name} is not known here" if name.endswith("LoginModule") else "it does not begin with a login module"
    return f"{shown}; there are {', '.join(_MODULES)}"


def _unknown_option(name: str, module: _Module, key: str) -> str:
    if key.startswith(_UNSECURED):
        return f"{_UNSECURED}... makes unsigned tokens, which only brokers of tests accept; it is refused"
    if key in _REFUSED:
        return f"{key} can't be obeyed here; {_REFUSED[key]}"
    if key.startswith(("ssl.", "sasl.")):
        return "an option of TLS or SASL is an option of the query: write it there, with 'kafka.' before its name"
    known = _KNOWN_NAMES.get(key.lower())
    shown = f"no option '{known}'" if known == key else "no such option"
    close = difflib.get_close_matches(key.lower(), [each.lower() for each in module.fields], n=1)
    meant = f"did you mean '{_KNOWN_NAMES[close[0]]}'?" if close else f"it has {', '.join(module.fields)}"
    return f"{name} has {shown}; {meant}"
