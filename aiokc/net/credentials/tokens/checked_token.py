"""A token from a provider, checked before it is kept: can it be sent, and when does it end?"""

from __future__ import annotations

from math import inf

from ....core.sasl.oauthbearer import OAuthBearer
from ....errors import AuthenticationFailed
from ....token_provider import OAuthToken, is_unix_seconds


def checked(token: OAuthToken, name: str, *, retriable: bool) -> OAuthToken | AuthenticationFailed:
    """Return ``token`` with the earlier one of its ``expires_at`` and the ``exp`` of a JWT.

    Returns an AuthenticationFailed to raise, which begins with the provider's ``name``, where the token or its
    extensions have characters that OAUTHBEARER can't carry, or where its end is no Unix time in seconds; ``retriable``
    says whether the next token may be better. It raises nothing, since frames of its callers hold the token as a text.
    Whether the token has expired is for the TokenSource to see.
    """
    mechanism = OAuthBearer(token.value, token.extensions, now=lambda: -inf, expires_at=token.expires_at)
    try:
        next(mechanism.conversation())  # the first message, which is not sent
    except AuthenticationFailed as error:
        return AuthenticationFailed(f"{name}: {error}", retriable=retriable)
    end = mechanism.expires_at
    if end is not None and not is_unix_seconds(end):
        why = f"the token ends at {end:.0f}, which is no Unix time in seconds{' (milliseconds?)' if end > 0 else ''}"
        return AuthenticationFailed(f"{name}: {why}", retriable=retriable)
    return OAuthToken(token.value, end, token.extensions)
