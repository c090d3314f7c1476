"""Who may call the simulated EC2: access keys with their accounts, signature check, roles."""

from __future__ import annotations

import hashlib
import hmac
import re
import urllib.parse
from dataclasses import dataclass, field

CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request")
SIGNED_HEADERS = re.compile(r"SignedHeaders=([^,\s]+)")
SIGNATURE = re.compile(r"Signature=([0-9a-f]{64})")


@dataclass
class Key:
    """One access key. `denied` lists the actions (or "*") that answer UnauthorizedOperation."""

    access_key_id: str
    secret_access_key: str
    account: str
    denied: list[str] = field(default_factory=list)


@dataclass
class Role:
    """One role that AssumeRole may hand out. It lives in the account that its ARN names."""

    arn: str
    external_id: str | None = None
    denied: list[str] = field(default_factory=list)

    @property
    def account(self) -> str:
        return self.arn.split(":")[4]


@dataclass
class Refused(Exception):
    """A call that does not reach EC2's own logic."""

    status: int
    code: str
    message: str


@dataclass
class Caller:
    """What the Authorization header says."""

    key: Key
    region: str
    service: str


NOT_VALID = "AWS was not able to validate the provided access credentials"
KEYS: dict[str, Key] = {}
ROLES: dict[str, Role] = {}


def peek(authorization: str) -> tuple[str, str, str]:
    """Access key ID, region and service as claimed, for the log; empty texts where there are none."""
    found = CREDENTIAL.search(authorization)
    return (found[1], found[3], found[4]) if found else ("", "", "")


def authenticate(env: dict, body: bytes) -> Caller:
    """Finds the caller's key and checks the signature (version 4), as EC2 does before anything else."""
    authorization = env.get("HTTP_AUTHORIZATION", "")
    access_key_id, region, service = peek(authorization)
    if not access_key_id:
        raise Refused(401, "AuthFailure", NOT_VALID)
    key = KEYS.get(access_key_id)
    if key is None or not hmac.compare_digest(_signature(env, body, key), _claimed(authorization)):
        raise Refused(401, "AuthFailure", NOT_VALID)
    return Caller(key, region, service)


def authorize(caller: Caller, action: str) -> None:
    """Refuses what the key is not allowed to do."""
    if action in caller.key.denied or "*" in caller.key.denied:
        message = (
            "You are not authorized to perform this operation. "
            f"User: arn:aws:iam::{caller.key.account}:user/hibernate is not authorized to perform: "
            f"ec2:{action} because no identity-based policy allows the ec2:{action} action"
        )
        raise Refused(403, "UnauthorizedOperation", message)


def assume(arn: str, external_id: str | None) -> Role:
    """The role, if it exists and the external ID is the one that its trust policy asks for."""
    role = ROLES.get(arn)
    if role is None or role.external_id != external_id:
        raise Refused(403, "AccessDenied", f"User is not authorized to perform: sts:AssumeRole on resource: {arn}")
    return role


def _claimed(authorization: str) -> str:
    found = SIGNATURE.search(authorization)
    return found[1] if found else ""


def _header(env: dict, name: str) -> str:
    key = name.upper().replace("-", "_")
    value = env.get(key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else "HTTP_" + key, "")
    return " ".join(value.split())


def _signature(env: dict, body: bytes, key: Key) -> str:
    authorization = env["HTTP_AUTHORIZATION"]
    _, date, region, service = CREDENTIAL.search(authorization).groups()
    signed = SIGNED_HEADERS.search(authorization)
    names = signed[1].split(";") if signed else []
    query = sorted(urllib.parse.parse_qsl(env.get("QUERY_STRING", ""), keep_blank_values=True))
    canonical = "\n".join(
        [
            env["REQUEST_METHOD"],
            urllib.parse.quote(env.get("PATH_INFO") or "/", safe="/~-._"),
            urllib.parse.urlencode(query, quote_via=urllib.parse.quote, safe="~-._"),
            *(f"{name}:{_header(env, name)}" for name in names),
            "",
            ";".join(names),
            env.get("HTTP_X_AMZ_CONTENT_SHA256") or hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{date}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{env.get('HTTP_X_AMZ_DATE', '')}\n{scope}\n{digest}"
    signing = b"AWS4" + key.secret_access_key.encode()
    for part in (date, region, service, "aws4_request"):
        signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
    return hmac.new(signing, text.encode(), hashlib.sha256).hexdigest()
