"""The exceptions by which the server's half of a mechanism refuses a login."""

from __future__ import annotations


class LoginRefused(Exception):
    """The broker answers SASL_AUTHENTICATION_FAILED with this text."""


class WrongCredentials(LoginRefused):
    """The broker answers SASL_AUTHENTICATION_FAILED with a general text; this one is for its log only."""
