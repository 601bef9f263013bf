"""Security for a real Kafka on this machine: its certificate, its users, and their ACLs.

Clients connect over TLS with a password. `admin` may do everything, `app` everything that producer_core needs, and
`app2` nothing until it has ACLs. The brokers' second listener, on the loopback address, needs no password, for
set-up.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from producer_core._internal import private_files
from producer_core._internal.join_names import join_names
from producer_core.brokers.layout import Node
from producer_core.errors import BrokerError, ConfigError, MissingTool
from producer_core.kafka.acls import Permission

HOST = "localhost"
"""The only name in the certificate."""

USERS: Mapping[str, str] = {"admin": "PLAIN", "app": "PLAIN", "app2": "SCRAM-SHA-256"}
"""The users, with the SASL mechanism of each."""

# not on the cluster: `app` is not an administrator
_EVERYTHING = tuple(Permission(resource, "*", "ALL") for resource in ("topic", "group", "transactional_id"))
_KAFKA = "org.apache.kafka.common.security"
_REQUEST = 30.0


@dataclass(frozen=True, slots=True)
class Security:
    """The security files of one cluster, all readable by their owner only."""

    folder: Path

    @property
    def ca(self) -> Path:
        """Return the certificate with which clients verify the brokers."""
        return self.folder / "ca.pem"

    @property
    def broker(self) -> Path:
        """Return the brokers' key and certificate."""
        return self.folder / "broker.pem"

    def password_file(self, user: str) -> Path:
        return self.folder / f"{_known(user)}.password"

    def config_file(self, user: str) -> Path:
        """Return the client settings for --config-file, kcat's -F, or any other librdkafka client."""
        return self.folder / f"{_known(user)}.properties"

    def password(self, user: str) -> str:
        return self.password_file(user).read_text(encoding="utf-8").strip()

    def settings(self, user: str) -> dict[str, str]:
        """Return the settings of a client of this user, without the addresses."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": USERS[_known(user)],
            "sasl.username": user,
            "sasl.password": self.password(user),
            "ssl.ca.location": str(self.ca),
            "broker.address.family": "v4",  # localhost may also mean ::1, where the brokers do not listen
        }


def create_security(folder: Path) -> Security:
    """Create certificates and passwords in this folder; existing ones stay as they are."""
    security = Security(folder)
    private_files.make_folder(folder)
    if not security.broker.exists():
        certify(security.ca, security.broker)
    for user in USERS:
        if not security.password_file(user).exists():
            _write(security.password_file(user), secrets.token_urlsafe(18) + "\n")
    return security


def write_client_configs(security: Security, bootstrap_servers: str) -> None:
    """Write each user's client settings."""
    for user in USERS:
        chosen = {"bootstrap.servers": bootstrap_servers, **security.settings(user)}
        _write(security.config_file(user), "".join(f"{name}={value}\n" for name, value in chosen.items()))


def advertise(node: Node) -> tuple[str, int]:
    """Return the address by name, because the certificate is for the name."""
    return HOST, node.port


def properties(security: Security) -> dict[str, str]:
    """Return the broker's settings: SASL_SSL for clients, plain text on loopback for brokers and controllers."""
    plain = " ".join(
        f'user_{user}="{security.password(user)}"'
        for user, mechanism in USERS.items()
        if mechanism == "PLAIN"
    )
    return {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENT:SASL_SSL,DIRECT:PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",  # ANONYMOUS: the plaintext listeners
        "listener.name.client.sasl.enabled.mechanisms": ",".join(dict.fromkeys(USERS.values())),
        "listener.name.client.plain.sasl.jaas.config": f"{_KAFKA}.plain.PlainLoginModule required {plain};",
        "listener.name.client.scram-sha-256.sasl.jaas.config": f"{_KAFKA}.scram.ScramLoginModule required;",
        "listener.name.client.ssl.keystore.type": "PEM",
        "listener.name.client.ssl.keystore.location": str(security.broker),
        "listener.name.client.ssl.truststore.type": "PEM",
        "listener.name.client.ssl.truststore.location": str(security.ca),
    }


def create_users(servers: str, security: Security) -> None:
    """Create the SCRAM users and give `app` its ACLs, over the listener for set-up.

    The storage tool could do it, but its arguments, with the passwords, would be visible in the process list.
    """
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    known = [
        UserScramCredentialUpsertion(
            user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), security.password(user).encode()
        )
        for user, mechanism in USERS.items()
        if mechanism == "SCRAM-SHA-256"
    ]
    for future in admin.alter_user_scram_credentials(known, request_timeout=_REQUEST).values():
        _done(future, "create the users")
    grant(servers, "app", _EVERYTHING)


def grant(servers: str, user: str, permissions: Sequence[Permission]) -> None:
    """Add ACLs; brokers apply them within milliseconds. `servers` are the cluster's direct ones."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    bindings = [_acl(AclBinding, user, permission) for permission in permissions]
    for future in admin.create_acls(bindings, request_timeout=_REQUEST).values():
        _done(future, "grant a permission")


def revoke(servers: str, user: str, permissions: Sequence[Permission]) -> None:
    """Remove ACLs that `grant` added for the same permissions."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    filters = [_acl(AclBindingFilter, user, permission) for permission in permissions]
    for future in admin.delete_acls(filters, request_timeout=_REQUEST).values():
        _done(future, "revoke a permission")


def certify(ca: Path, broker: Path, *, name: str = HOST) -> None:
    """Create an authority, and a key and certificate for `name` signed by it; discard the authority's own key."""
    if shutil.which("openssl") is None:
        raise MissingTool(
            "A secured broker needs openssl for its certificate; it is not installed.",
            fix="Install it: apt-get install openssl (Debian, Ubuntu).",
        )
    with tempfile.TemporaryDirectory(prefix="producer-core-ca-") as scratch:
        here = Path(scratch)
        (here / "names").write_text(f"subjectAltName=DNS:{name}\nbasicConstraints=CA:FALSE\n")
        key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
        _openssl(here, f"req -x509 {key} -days 3650 -subj /CN=producer-core -keyout ca.key -out ca.pem")
        _openssl(here, f"req {key} -subj /CN={name} -keyout broker.key -out broker.csr")
        signing = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile names"
        _openssl(here, f"x509 -req -in broker.csr {signing} -out broker.crt")
        parts = [(here / part).read_text() for part in ("broker.key", "broker.crt", "ca.pem")]
        _write(ca, parts[2])
        _write(broker, "".join(parts))


def _openssl(folder: Path, command: str) -> None:
    done = subprocess.run(
        ["openssl", *command.split()], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise BrokerError(f"openssl could not create the broker's certificate: {done.stderr.strip()[-300:]}")


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(path.suffix + ".new")
    draft.unlink(missing_ok=True)
    private_files.write(draft, text)
    draft.replace(path)


def _known(user: str) -> str:
    if user not in USERS:
        raise ConfigError(f"Unknown user {user!r}.", fix=f"Use {join_names(USERS, 'or')}.")
    return user


def _acl(kind: type[Any], user: str, permission: Permission) -> Any:
    resource = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "transactional_id": ResourceType.TRANSACTIONAL_ID,
        "cluster": ResourceType.BROKER,  # librdkafka's name for Kafka's CLUSTER
    }[permission.resource]
    pattern = ResourcePatternType.PREFIXED if permission.prefixed else ResourcePatternType.LITERAL
    operation = AclOperation[permission.operation]
    return kind(resource, permission.name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def _done(future: Future[Any], what: str) -> None:
    try:
        future.result(_REQUEST)
    except KafkaException as error:
        raise BrokerError(f"The cluster did not {what}: {error.args[0].str()}.") from error
