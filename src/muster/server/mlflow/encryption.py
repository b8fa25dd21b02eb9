"""Keys with which MLflow's gateway and webhooks encrypt secrets: derived from this server's key file.

MLflow's default is a passphrase that is public in its source, and for webhooks a key that is lost with the process.
They are replaced in MLflow's classes and not in the environment, because processes that this server starts would see
that.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import logging
import os
from typing import Any, Final

from cryptography.fernet import Fernet

log = logging.getLogger("muster.server")

_PASSPHRASE: Final = "MLFLOW_CRYPTO_KEK_PASSPHRASE"  # noqa: S105  (the variable's name)
_WEBHOOKS: Final = "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY"


def set_passphrase(own: str) -> None:
    """Makes MLflow encrypt with this passphrase, unless MLflow's own variables are set."""
    crypto: Any = importlib.import_module("mlflow.utils.crypto")
    if not hasattr(crypto, "_muster_init"):
        crypto._muster_init = crypto.KEKManager.__init__
    made = crypto._muster_init

    def init(self: Any, passphrase: str | None = None, kek_version: int | None = None) -> None:
        made(self, passphrase or os.environ.get(_PASSPHRASE) or own, kek_version)

    crypto.KEKManager.__init__ = init
    if not os.environ.get(_WEBHOOKS):
        models: Any = importlib.import_module("mlflow.store.model_registry.dbmodels.models")
        key = hashlib.sha256(f"webhooks {own}".encode()).digest()
        models.SqlWebhook.__table__.c.secret.type.cipher = Fernet(base64.urlsafe_b64encode(key))


def reencrypt(store: Any) -> int:
    """Re-encrypts the keys of secrets that were encrypted with MLflow's public default; returns how many there were."""
    crypto: Any = importlib.import_module("mlflow.utils.crypto")
    models: Any = importlib.import_module("mlflow.store.tracking.dbmodels.models")
    with store.ManagedSessionMaker(read_only=False) as session:
        rows = session.query(models.SqlGatewaySecret).all()
        count = 0
        for version in {row.kek_version for row in rows}:
            ours = crypto.KEKManager(None, version)
            public = crypto.KEKManager(crypto.DEFAULT_KEK_PASSPHRASE, version)
            for row in (row for row in rows if row.kek_version == version):
                if _opens(crypto, row.wrapped_dek, ours):
                    continue
                if not _opens(crypto, row.wrapped_dek, public):
                    log.warning(
                        "the gateway's secret %r was sealed with another key than this server's: put the right key "
                        "file back, or set the secret anew",
                        row.secret_name,
                    )
                    continue
                dek = crypto.unwrap_dek(row.wrapped_dek, public.get_kek())
                row.wrapped_dek = crypto.wrap_dek(dek, ours.get_kek())
                count += 1
    if count:
        log.warning("%d secrets of MLflow's gateway had been sealed with its public default key: sealed anew", count)
    return count


def _opens(crypto: Any, wrapped: bytes, manager: Any) -> bool:
    try:
        crypto.unwrap_dek(wrapped, manager.get_kek())
    except Exception:  # an error of MLflow, or of the library below it
        return False
    return True
